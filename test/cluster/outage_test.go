package cluster

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/kube/tell"
)

// The API server is away during the eviction and over a restart of ours: the pod is
// down at once, stays so, and is told of once.
func toldAfterAnOutage(s *stage) {
	// The hold outlasts the API server: of a pod that may run again nobody is told.
	s.evictor(policy{pods: s.podsThreshold(), transition: 2 * time.Minute})
	pod := s.create(slowHog("late"))
	s.awaitRunning(pod)
	if err := s.plane.StopAPIServer(); err != nil {
		s.t.Fatal(err)
	}
	s.awaitKilled(pod.UID)
	if err := s.evict.kill(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.evict.start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "it waits in the queue", 30*time.Second, func() error {
		st, err := s.client().Status(s.t.Context())
		if err != nil {
			return err
		}
		if now := st.Engine.Telling; now == nil || now.Queued != 1 || now.Reachable {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	if err := s.plane.StartAPIServer(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	log := s.logSize() // before that kubelet says of each pod that the API server is away
	// kubelet learns of it when its own watch is back, and writes what it knows until
	// then; we see that and tell it again.
	want := ending{exit: 137, settling: 30 * time.Second}
	s.awaitEvicted(pod, want)
	s.awaitTold(pod)
	s.audit(pod, want, log)
	s.mustBeUntouched()
}

// awaitTold returns when the telling of this pod's eviction has come to its end. Others
// whose hold a restart finds are told again, and are not counted here.
func (s *stage) awaitTold(pod *v1.Pod) {
	s.t.Helper()
	eventually(s.t, "the telling has come to its end", time.Minute, func() error {
		x, err := s.client().Explain(s.t.Context(), pod.Namespace+"/"+pod.Name)
		if err != nil {
			return err
		}
		if n := len(x.Decisions); n == 0 || x.Decisions[n-1].Telling == nil || x.Decisions[n-1].Telling.Outcome != tell.Told {
			return fmt.Errorf("%s", jsonText(x.Decisions))
		}
		return nil
	})
	s.awaitSettled()
}

// awaitSettled returns when nothing is left to be told.
func (s *stage) awaitSettled() {
	s.t.Helper()
	eventually(s.t, "everything is told", time.Minute, func() error {
		st, err := s.client().Status(s.t.Context())
		if err != nil {
			return err
		}
		if st.Engine.Telling.Queued+st.Engine.Telling.Verifying > 0 {
			return fmt.Errorf("%+v", st.Engine.Telling)
		}
		return nil
	})
}
