package handover

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/internal/lab/labtest"
)

const (
	// restartsEnv is how often TestRestartsUnderLoad restarts the proxy; `make
	// soak-handover` says 200.
	restartsEnv = "CRI_EVICTD_RESTARTS"
	// restartAfter is RestartSec= of the proxy's unit.
	restartAfter = 100 * time.Millisecond
	// longestSilence is many times what a restart takes on a machine that has
	// nothing else to do.
	longestSilence = 15 * time.Second
)

// answers are those to one kind of call.
type answers struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration // between two of them
	n       int
}

func (a *answers) note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if !a.last.IsZero() {
		a.longest = max(a.longest, now.Sub(a.last))
	}
	a.last = now
	a.n++
}

// take returns the longest time without one since the last take.
func (a *answers) take() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	longest := a.longest
	a.longest = 0
	return longest
}

func (a *answers) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// held is a proxy behind a socket that somebody else holds, as systemd does.
type held struct {
	t      *testing.T
	dir    string
	socket *os.File
	cmd    *exec.Cmd
	log    lab.Output
}

func (h *held) start() {
	h.t.Helper()
	h.cmd = exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=cri exec "$0" "$@"`,
		filepath.Join(build(h.t), "v1"), "proxy", "--config", filepath.Join(h.dir, "config.yaml"))
	h.cmd.ExtraFiles = []*os.File{h.socket}
	h.cmd.Stdout, h.cmd.Stderr = &h.log, &h.log
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
}

func (h *held) end(signal syscall.Signal) {
	_ = h.cmd.Process.Signal(signal) // one that has ended does not come up to be asked
	_ = h.cmd.Wait()                 // killed
}

// However the proxy ends, whoever connects waits for the next one, and calls are
// answered again at once. In front of a real containerd, with a list every 100 ms.
func TestRestartsUnderLoad(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs containerd")
	}
	times := 6
	if v := os.Getenv(restartsEnv); v != "" {
		var err error
		if times, err = strconv.Atoi(v); err != nil {
			t.Fatalf("%s: %v", restartsEnv, err)
		}
	}
	h := &held{t: t}
	ctd := startContainerd(t)
	var err error
	if h.dir, err = os.MkdirTemp("", "hr"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(h.dir) })
	if err := os.WriteFile(filepath.Join(h.dir, "config.yaml"), []byte(lab.Config(h.dir, ctd.Socket, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(h.dir, "cri.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if h.socket, err = l.(*net.UnixListener).File(); err != nil {
		t.Fatal(err)
	}
	h.start()
	t.Cleanup(func() { h.end(syscall.SIGKILL) })

	ctx, stop := context.WithCancel(t.Context())
	var lists answers
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecureCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	workers.Go(func() {
		every(ctx, 100*time.Millisecond, func() {
			if _, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err == nil {
				lists.note() // a call that a kill cuts fails
			}
		})
	})
	connects := 0
	workers.Go(func() {
		var d net.Dialer
		every(ctx, 20*time.Millisecond, func() {
			c, err := d.DialContext(ctx, "unix", path)
			if err == nil {
				err = c.Close()
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("a connect failed: %v", err)
			}
			connects++
		})
	})
	answered := func() {
		before := lists.count()
		eventually(t, "lists are answered", func() bool { return lists.count() >= before+2 })
	}
	answered()
	silence := map[syscall.Signal][]time.Duration{}
	for i := range times {
		signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[i%2]
		lists.take()
		h.end(signal)
		time.Sleep(restartAfter) // what the service manager does
		h.start()
		answered()
		silence[signal] = append(silence[signal], lists.take())
	}
	stop()
	workers.Wait()
	t.Logf("%d connects, %d lists", connects, lists.count())
	for signal, all := range silence {
		slices.Sort(all)
		t.Logf("%d times %v: without an answer for %v in the middle, %v at most", len(all), signal, all[len(all)/2], all[len(all)-1])
		if longest := all[len(all)-1]; longest > longestSilence {
			t.Errorf("%v: nothing was answered for %v", signal, longest)
		}
	}
	logStart(t)
}

// every calls f every period until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// logStart tells what the program's start alone takes here, to compare machines.
func logStart(t *testing.T) {
	t.Helper()
	var all []time.Duration
	for range 5 {
		begun := time.Now()
		if err := exec.Command(filepath.Join(build(t), "v1"), "version").Run(); err != nil {
			t.Fatal(err)
		}
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	t.Logf("`cri-evictd version` takes %v", all[len(all)/2])
}

func startContainerd(t *testing.T) *lab.Containerd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a cold cache builds it
	defer cancel()
	tools, err := lab.EnsureRuntime(ctx, os.Stderr, lab.Current)
	if err != nil {
		t.Fatal(err)
	}
	return labtest.Containerd(ctx, t, lab.ContainerdOptions{Tools: tools, Version: lab.Current, Dir: labtest.Scratch(t)})
}
