package handover

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/holds"
)

const heldUID = "77777777-2222-3333-4444-555555555555"

// hold leaves a pod that was evicted a moment ago.
func (r *rig) hold() {
	r.t.Helper()
	w, err := holds.OpenWriter(r.path("run"))
	if err != nil {
		r.t.Fatal(err)
	}
	now := time.Now().UTC()
	err = w.Put(holds.Record{
		ID: w.NextID(), State: holds.Killed, UID: heldUID, Namespace: "default", Name: "hog", Signal: "memory.available",
		Threshold: 500 << 20, Available: 430 << 20, AvailableKubelet: 440 << 20, Usage: 900 << 20, Request: 100 << 20,
		Decided: now, KilledAt: now.Add(50 * time.Millisecond),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// refused fails unless the held pod's start is.
func refused(t *testing.T, cri runtimeapi.RuntimeServiceClient) {
	t.Helper()
	_, err := cri.RunPodSandbox(context.WithoutCancel(t.Context()), &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: "hog", Uid: heldUID, Attempt: 1},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the held pod's start: %v", err)
	}
}

func TestEvictorHandsOverWhileHoldsStand(t *testing.T) {
	r := newRig(t, "")
	r.hold()
	r.start("proxy")
	first := r.start("evict")
	cri := r.serving()
	eventually(t, "the evictor answers", func() bool { return r.adminPID() == first.cmd.Process.Pid })

	stop, watched := make(chan struct{}), make(chan int, 1)
	var once sync.Once
	end := func() { once.Do(func() { close(stop) }) }
	t.Cleanup(end)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				watched <- n
				return
			default:
				refused(t, cri)
			}
		}
	}()
	of := first.cmd.Process.Pid
	for i := range 5 {
		r.install([]string{"v2", "v1"}[i%2])
		results, code := r.upgrade()
		if code != 0 || len(results) != 2 {
			t.Fatalf("exit %d, %+v", code, results)
		}
		e := results[1]
		if e.Part != "evictor" || e.Old.PID != of || r.adminPID() != e.New.PID {
			t.Fatalf("hand-over %d: %+v, pid %d answers", i, e, r.adminPID())
		}
		of = e.New.PID
		eventually(t, "the old one has ended", func() bool { return !alive(e.Old.PID) })
	}
	// One that crashes: the old one goes on deciding, with holds and ledger.
	r.installFile([]byte("#!/bin/sh\necho prepared >&3\nsleep 0.2\nexit 3\n"))
	results, code := r.upgrade()
	if code != 1 || results[len(results)-1].Error == "" {
		t.Errorf("exit %d, %+v", code, results)
	}
	eventually(t, "the old evictor answers again", func() bool { return r.adminPID() == of })
	end()
	if n := <-watched; n < 10 {
		t.Errorf("watched %d times only", n)
	}
	out, err := exec.Command(filepath.Join(build(t), "v1"), "holds", "list", "--admin-socket", r.path("admin.sock")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "default/hog") {
		t.Errorf("the hold: %v\n%s", err, out)
	}
}

// Both halves in one process go together.
func TestServeHandsOver(t *testing.T) {
	r := newRig(t, "handOverTimeout: "+handOver.String())
	r.hold()
	s := r.start("serve")
	cri := r.serving()
	eventually(t, "the evictor answers", func() bool { return r.adminPID() == s.cmd.Process.Pid })
	l := r.load()
	of := s.cmd.Process.Pid
	for range 4 {
		o := r.mustUpgrade()
		if o.Old.PID != of {
			t.Errorf("%+v, was %d", o, of)
		}
		of = o.New.PID
		refused(t, cri)
		eventually(t, "the new evictor answers", func() bool { return r.adminPID() == of })
	}
	l.stop()
	l.none(t)
	if err := syscall.Kill(of, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it ends when told to", func() bool { return !alive(of) })
}

func TestUpgradeOfNothing(t *testing.T) {
	r := newRig(t, "")
	results, code := r.upgrade()
	if code != 1 || len(results) != 1 || !strings.Contains(results[0].Error, "nobody serves") {
		t.Errorf("exit %d, %+v", code, results)
	}
}
