package cluster

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Whatever is restarted or killed in the moment of an eviction, its end is the
// same.
func evictedOverRestarts(s *stage) {
	p := policy{pods: s.podsThreshold()}
	s.evictor(p)
	for _, c := range s.disturbances() {
		s.t.Run(c.what, func(t *testing.T) {
			s := s.in(t)
			if c.soakOnly && soak(t) == 0 {
				t.Skip("in make soak-cluster")
			}
			for range times(t, 3) {
				log := s.logSize()
				pod := s.create(slowHog("disturbed"))
				s.awaitHold(pod.UID, time.Minute)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				err := c.disturb(ctx)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				s.awaitEvictor(p)
				want := killed
				want.unseen = c.unseen
				s.awaitEvicted(pod, want)
				if c.noisy {
					log = s.logSize() // what kubelet says of a runtime that is away is not about the eviction
				}
				s.audit(pod, want, log)
				s.remove(pod)
			}
		})
	}
	s.mustBeUntouched()
}

type disturbance struct {
	what     string
	disturb  func(context.Context) error
	noisy    bool // kubelet's log tells of it
	unseen   bool // the runtime is killed
	soakOnly bool
}

func (s *stage) disturbances() []disturbance {
	again := func(h *half, end func() error) func(context.Context) error {
		return func(context.Context) error { return errors.Join(end(), h.start()) }
	}
	kubelet := func(ctx context.Context) error { return errors.Join(s.kubelet.Kill(), s.startKubelet(ctx)) }
	return []disturbance{
		{"kubelet and containerd killed", func(ctx context.Context) error {
			return errors.Join(s.kubelet.Kill(), s.ctd.Kill(), s.ctd.Restart(ctx), s.startKubelet(ctx))
		}, true, true, false},
		{"proxy and evictor killed", func(context.Context) error {
			return errors.Join(s.proxy.kill(), s.evict.kill(), s.proxy.start(), s.evict.start())
		}, true, false, false},
		{"kubelet killed", kubelet, true, false, true},
		{"kubelet restarted", func(ctx context.Context) error { return errors.Join(s.kubelet.Stop(), s.startKubelet(ctx)) }, true, false, true},
		{"containerd killed", func(ctx context.Context) error { return errors.Join(s.ctd.Kill(), s.ctd.Restart(ctx)) }, true, true, true},
		{"containerd restarted", s.ctd.Restart, true, false, true},
		{"proxy killed", again(s.proxy, s.proxy.kill), false, false, true},
		{"proxy restarted", again(s.proxy, s.proxy.stop), false, false, true},
		{"evictor killed", again(s.evict, s.evict.kill), false, false, true},
		{"evictor restarted", again(s.evict, s.evict.stop), false, false, true},
	}
}
