package handover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// load is kubelet at work: unary calls of several kinds, some on connections of
// their own, pulls that take their time, and a stream of events.
type load struct {
	cancel  context.CancelFunc
	workers sync.WaitGroup
	calls   atomic.Uint64
	streams atomic.Uint64

	mu     sync.Mutex
	failed []error
}

const (
	// pullTakes is shorter than handOver, the time calls have after a hand-over.
	pullTakes = 700 * time.Millisecond
	handOver  = 2 * time.Second
)

func (r *rig) load() *load {
	r.t.Helper()
	r.runtime.Inject("PullImage", fakecri.Fault{Delay: pullTakes})
	r.runtime.Inject("ExecSync", fakecri.Fault{Delay: 30 * time.Millisecond, Raw: [][]byte{{}}})
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	shared := r.conn()
	l.repeat(ctx, "ListPodSandbox", 10*time.Millisecond, func(ctx context.Context) error {
		_, err := runtimeapi.NewRuntimeServiceClient(shared).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		return err
	})
	for range 2 {
		l.repeat(ctx, "ExecSync", 0, func(ctx context.Context) error {
			_, err := runtimeapi.NewRuntimeServiceClient(shared).ExecSync(ctx, &runtimeapi.ExecSyncRequest{Cmd: []string{"probe"}})
			return err
		})
		l.repeat(ctx, "PullImage", 0, func(ctx context.Context) error {
			_, err := runtimeapi.NewImageServiceClient(shared).PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "x"}})
			return err
		})
	}
	l.repeat(ctx, "Version of crictl", 20*time.Millisecond, func(ctx context.Context) error {
		c, err := grpc.NewClient(shared.Target(), grpc.WithTransportCredentials(insecureCredentials()))
		if err != nil {
			return err
		}
		_, err = runtimeapi.NewRuntimeServiceClient(c).Version(ctx, &runtimeapi.VersionRequest{})
		return errors.Join(err, c.Close())
	})
	l.workers.Go(func() {
		for ctx.Err() == nil {
			stream, err := runtimeapi.NewRuntimeServiceClient(shared).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
			if err == nil {
				l.streams.Add(1)
				_, err = stream.Recv()
			}
			if err == nil {
				continue
			}
			select { // as kubelet does, not at once
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	r.t.Cleanup(l.stop)
	return l
}

// repeat makes a call again and again.
func (l *load) repeat(ctx context.Context, name string, pause time.Duration, call func(context.Context) error) {
	l.workers.Go(func() {
		for ctx.Err() == nil {
			one, cancel := context.WithTimeout(ctx, patience)
			err := call(one)
			cancel()
			if ctx.Err() != nil {
				return
			}
			l.calls.Add(1)
			if err != nil {
				l.mu.Lock()
				l.failed = append(l.failed, fmt.Errorf("%s: %s: %w", time.Now().Format("15:04:05.000"), name, err))
				l.mu.Unlock()
			}
			if pause > 0 {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
			}
		}
	})
}

func (l *load) stop() {
	l.cancel()
	l.workers.Wait()
}

// none fails if a call did.
func (l *load) none(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, err := range l.failed {
		if i < 10 {
			t.Error(err)
		}
	}
	if len(l.failed) > 0 {
		t.Errorf("%d of %d calls failed", len(l.failed), l.calls.Load())
	}
}

func TestTwentyHandOversUnderLoad(t *testing.T) {
	r := newRig(t, "handOverTimeout: "+handOver.String())
	r.start("proxy")
	r.serving()
	l := r.load()
	last := 0
	for i := range 20 {
		version := []string{"v2", "v1"}[i%2]
		r.install(version)
		o := r.mustUpgrade()
		if o.New.Version != version || o.Old.Version == version || o.New.PID == o.Old.PID || last != 0 && o.Old.PID != last {
			t.Fatalf("hand-over %d: %+v", i, o)
		}
		last = o.New.PID
		before := l.calls.Load()
		eventually(t, "calls go on", func() bool { return l.calls.Load() > before+20 })
	}
	l.stop()
	l.none(t)
	if n := l.streams.Load(); n < 10 {
		t.Errorf("the stream was opened %d times only", n)
	}
	t.Logf("%d calls, %d event streams", l.calls.Load(), l.streams.Load())
	eventually(t, "one generation is left", func() bool { return r.generations() == 1 })
}

// generations counts the processes of the installed program.
func (r *rig) generations() int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if b, err := os.ReadFile("/proc/" + e.Name() + "/cmdline"); err == nil && strings.HasPrefix(string(b), r.program+"\x00") {
			n++
		}
	}
	return n
}

func TestAtMostTwoGenerations(t *testing.T) {
	r := newRig(t, "handOverTimeout: 1m")
	r.start("proxy")
	r.serving()
	release := make(chan struct{})
	r.runtime.Inject("PullImage", fakecri.Fault{Wait: release, Times: 1})
	pulled := make(chan error, 1)
	pulling := r.conn()
	go func() {
		_, err := runtimeapi.NewImageServiceClient(pulling).PullImage(t.Context(), &runtimeapi.PullImageRequest{})
		pulled <- err
	}()
	eventually(t, "a pull is under way", func() bool { return len(r.runtime.Calls("PullImage")) == 1 })
	first := r.mustUpgrade()
	second := make(chan []outcome, 1)
	go func() {
		results, _ := r.upgrade()
		second <- results
	}()
	for range 20 { // the second one waits all the while
		if n := r.generations(); n > 2 {
			t.Fatalf("%d generations", n)
		}
		time.Sleep(20 * time.Millisecond)
	}
	select {
	case o := <-second:
		t.Fatalf("a third generation: %+v", o)
	default:
	}
	close(release)
	if err := <-pulled; err != nil {
		t.Errorf("the pull: %v", err)
	}
	if o := <-second; len(o) != 1 || o[0].Old.PID != first.New.PID {
		t.Errorf("first %+v, second %+v", first, o)
	}
}

func TestProgramThatDoesNotComeUpLeavesTheOldOneServing(t *testing.T) {
	r := newRig(t, "handOverTimeout: "+handOver.String())
	s := r.start("proxy")
	r.serving()
	l := r.load()
	for name, program := range map[string]string{
		"crashes":        "#!/bin/sh\nexit 3\n",
		"is none":        "nothing that can be run",
		"comes half way": "#!/bin/sh\necho prepared >&3\nkill -9 $$\n",
	} {
		r.installFile([]byte(program))
		results, code := r.upgrade()
		if code != 1 || len(results) != 1 || results[0].Error == "" {
			t.Errorf("%s: exit %d, %+v", name, code, results)
		}
	}
	if err := os.Remove(r.program); err != nil {
		t.Fatal(err)
	}
	if results, code := r.upgrade(); code != 1 || !strings.Contains(results[0].Error, "no such file") {
		t.Errorf("no program: exit %d, %+v", code, results)
	}
	// A configuration that the new one does not take is one more reason.
	r.install("v2")
	config, err := os.ReadFile(r.path("config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.path("config.yaml"), append(config, "\nmode: no\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if results, code := r.upgrade(); code != 1 {
		t.Errorf("broken configuration: %+v", results)
	}
	if err := os.WriteFile(r.path("config.yaml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := r.mustUpgrade(); o.Old.PID != s.cmd.Process.Pid || o.New.Version != "v2" {
		t.Errorf("%+v", o)
	}
	l.stop()
	l.none(t)
}

// Whichever of the two is killed: the other one does what is left to do.
func TestKillsDuringAHandOver(t *testing.T) {
	t.Run("the old one", func(t *testing.T) {
		r := newRig(t, "handOverTimeout: 1m")
		s := r.start("proxy")
		cri := r.serving()
		if _, err := cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a stream keeps the old one", func() bool { return len(r.runtime.Calls("GetContainerEvents")) == 1 })
		o := r.mustUpgrade()
		if !alive(s.cmd.Process.Pid) {
			t.Fatal("the old one did not wait for its stream")
		}
		if err := syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.serving()
		if !alive(o.New.PID) {
			t.Error("the new one went along")
		}
		r.mustUpgrade() // it sees that the old one is gone
	})
	t.Run("the new one", func(t *testing.T) {
		r := newRig(t, "handOverTimeout: 1m")
		s := r.start("proxy")
		cri := r.serving()
		if _, err := cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a stream keeps the old one", func() bool { return len(r.runtime.Calls("GetContainerEvents")) == 1 })
		o := r.mustUpgrade()
		if err := syscall.Kill(o.New.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// It ends for a new start by the service manager, well before its limit.
		eventually(t, "the old one ends", func() bool { return !alive(s.cmd.Process.Pid) })
	})
}

func TestOtherUsersReachNoSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: to be another user")
	}
	r := newRig(t, "")
	r.start("proxy")
	r.start("evict")
	r.serving()
	eventually(t, "the evictor answers", func() bool { return r.adminPID() != 0 })
	if err := os.Chmod(r.dir, 0o755); err != nil { // the folder is not what keeps them out
		t.Fatal(err)
	}
	exe := r.path("dial")
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(exe, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{"cri.sock", "admin.sock", "run/proxy.sock"} {
		for uid, want := range map[uint32]int{65534: dialRefused, 0: dialReached} {
			cmd := exec.Command(exe)
			cmd.Env = []string{dialEnv + "=" + r.path(socket)}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
				t.Errorf("%s by uid %d: %v %s", socket, uid, err, out)
			}
		}
	}
}
