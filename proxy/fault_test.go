package proxy

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// version calls Version and returns the process that answered.
func (r *rig) version(ctx context.Context) (pid string, err error) {
	var head metadata.MD
	_, err = r.cri().Version(ctx, &runtimeapi.VersionRequest{}, grpc.Header(&head))
	if v := head.Get("x-pid"); len(v) == 1 {
		pid = v[0]
	}
	return pid, err
}

// The runtime is away for 30 s: all that while calls fail at once, and it is
// found soon after.
func TestRuntimeAwayForLong(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, err := r.version(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.runtime.Crash()
	const away = 30 * time.Second
	calls, longest := 0, time.Duration(0)
	for begun := time.Now(); time.Since(begun) < away; calls++ {
		at := time.Now()
		_, err := r.version(context.Background())
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		longest = max(longest, time.Since(at))
		time.Sleep(20 * time.Millisecond) // kubelet does not call without a pause either
	}
	if longest > 2*time.Second || calls < 500 {
		t.Errorf("%d calls, one took %v", calls, longest)
	}
	if err := r.runtime.Up(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	eventually(t, "runtime back", func() bool { _, err := r.version(r.ctx()); return err == nil })
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("found only after %v", d)
	}
}

// A runtime that takes connections and says nothing, and one that is stopped
// with connections up: calls end at their deadline at the latest, and all goes
// on as soon as it does.
func TestHungRuntime(t *testing.T) {
	t.Parallel()
	t.Run("accepts and is silent", func(t *testing.T) {
		r := newRig(t, nil)
		if _, err := r.version(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if err := r.runtime.Silent(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			begun := time.Now()
			if _, err := r.version(context.Background()); status.Code(err) != codes.Unavailable || time.Since(begun) > 15*time.Second {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
		}
		if err := r.runtime.Up(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "runtime back", func() bool { _, err := r.version(r.ctx()); return err == nil })
	})
	t.Run("process stopped", func(t *testing.T) {
		r := &rig{t: t, dir: shortDir(t)}
		p := r.otherProcess()
		r.startProxy(nil)
		if _, err := r.version(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if err := p.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.ctx(), 300*time.Millisecond)
		defer cancel()
		if _, err := r.version(ctx); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("with a deadline: %v", err)
		}
		patient := make(chan error, 1)
		go func() {
			_, err := r.version(r.ctx())
			patient <- err
		}()
		eventually(t, "the other call waits", func() bool { return r.proxy.Status().InFlight == 1 })
		if err := p.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := <-patient; err != nil {
			t.Errorf("the patient call: %v", err)
		}
	})
}

// Another process takes the runtime's path: as long as the first lives its
// connection is used, then the new one's; the evictor is told to list anew.
func TestRuntimeReplacedByAnotherProcess(t *testing.T) {
	r := &rig{t: t, dir: shortDir(t)}
	first := r.otherProcess()
	r.startProxy(nil)
	pid, err := r.version(r.ctx())
	if err != nil || pid != fmt.Sprint(first.Process.Pid) {
		t.Fatalf("answered by %s, %v", pid, err)
	}
	events := r.subscribeTo()
	second := r.otherProcess()
	if pid, err := r.version(r.ctx()); err != nil || pid != fmt.Sprint(first.Process.Pid) {
		t.Errorf("answered by %s, %v", pid, err)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second process answers", func() bool {
		pid, err := r.version(r.ctx())
		return err == nil && pid == fmt.Sprint(second.Process.Pid)
	})
	r.want(events, EventDirty)
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// 1,000 times the connection to the runtime breaks and is made anew: neither
// descriptors nor goroutines grow.
func TestThousandReconnects(t *testing.T) {
	r := newRig(t, nil)
	reconnect := func(n int) {
		for i := range n {
			before := r.runtime.Dials()
			r.runtime.Cut()
			// The direct connection of the rig is idle and stays away.
			eventually(t, "connected again", func() bool { return r.runtime.Dials() > before })
			if i%50 == 0 {
				eventually(t, "calls pass", func() bool { _, err := r.version(context.Background()); return err == nil })
			}
		}
	}
	reconnect(20)
	runtime.GC()
	fds, goroutines := descriptors(t), runtime.NumGoroutine()
	reconnect(1000)
	eventually(t, fmt.Sprintf("about %d descriptors", fds), func() bool { return descriptors(t) <= fds+5 })
	eventually(t, fmt.Sprintf("about %d goroutines", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines+10 })
	if n := r.proxy.Status().InFlight; n != 0 {
		t.Errorf("%d calls open", n)
	}
}

// A reply above 64 MiB fails this call with the code and text a client with the
// same limit has, and no other.
func TestHugeReply(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.Inject("ListContainers", fakecri.Fault{Huge: 64<<20 + 1})
	direct := exchange(r.ctx(), r.direct, "/runtime.v1.RuntimeService/ListContainers", "", nil)
	through := exchange(r.ctx(), r.through, "/runtime.v1.RuntimeService/ListContainers", "", nil)
	if direct.code != codes.ResourceExhausted || through.code != direct.code || through.text != direct.text {
		t.Errorf("direct %v %q, through %v %q", direct.code, direct.text, through.code, through.text)
	}
	if _, err := r.version(r.ctx()); err != nil {
		t.Error(err)
	}
}

// Half a stream: what was sent arrives, then Unavailable.
func TestHalfAStream(t *testing.T) {
	r := newRig(t, nil)
	arrived := make(chan struct{})
	r.runtime.Inject("StreamContainers", fakecri.Fault{Raw: [][]byte{payload("1"), payload("2")}, Cut: true, CutAfter: arrived})
	stream, err := r.cri().StreamContainers(r.ctx(), &runtimeapi.StreamContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	close(arrived)
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("end: %v", err)
	}
	eventually(t, "calls pass again", func() bool { _, err := r.version(r.ctx()); return err == nil })
}

// Each fault of the fake runtime, at each method that is looked into: the caller
// gets what it would get directly.
func TestFaultsOfEveryLookedIntoMethod(t *testing.T) {
	t.Parallel()
	methods := slices.DeleteFunc(allMethods(), func(m string) bool { return classify(m) == other })
	if len(methods) < 12 {
		t.Fatalf("only %v", methods)
	}
	for name, fault := range map[string]fakecri.Fault{
		"delay":              {Delay: 50 * time.Millisecond, Raw: [][]byte{payload("late")}},
		"error with details": {Err: detailed(t)},
		"lost answer":        {ErrAfter: status.Error(codes.Unknown, "lost")},
		"empty":              {Empty: true},
		"two answers":        {Raw: [][]byte{payload("1"), payload("2")}},
		"huge":               {Huge: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.runtime.Inject("*", fault)
			for _, m := range methods {
				direct := exchange(r.ctx(), r.direct, m, "", payload("q"))
				through := exchange(r.ctx(), r.through, m, "", payload("q"))
				if !reflect.DeepEqual(direct, through) {
					t.Errorf("%s:\ndirect  %.300v\nthrough %.300v", m, direct, through)
				}
			}
			if n := r.proxy.Status().Panics; n != 0 {
				t.Errorf("%d panics", n)
			}
		})
	}
	t.Run("crash", func(t *testing.T) {
		r := newRig(t, nil)
		for _, m := range methods {
			r.runtime.Inject(m, fakecri.Fault{Crash: true, Times: 1})
			if got := exchange(r.ctx(), r.through, m, "", payload("q")); got.code != codes.Unavailable {
				t.Errorf("%s: %v", m, got.code)
			}
			if err := r.runtime.Up(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "runtime back", func() bool { _, err := r.version(r.ctx()); return err == nil })
		}
	})
	t.Run("never answers", func(t *testing.T) {
		r := newRig(t, nil)
		for _, m := range methods {
			r.runtime.Inject(m, fakecri.Fault{Hang: true})
			ctx, cancel := context.WithTimeout(r.ctx(), 100*time.Millisecond)
			if got := exchange(ctx, r.through, m, "", payload("q")); got.code != codes.DeadlineExceeded {
				t.Errorf("%s: %v", m, got.code)
			}
			cancel()
		}
		eventually(t, "no call open", func() bool { return r.proxy.Status().InFlight == 0 })
	})
}
