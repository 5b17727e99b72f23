// Package units installs the units of systemd/ in the virtual machine of test/vm,
// with its real systemd, and tries what they are for. It runs nowhere else.
package units

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const (
	marker   = "/etc/cri-evictd-vm" // of the machine's image
	program  = "/usr/bin/cri-evictd"
	library  = "/usr/lib/cri-evictd"
	unitDir  = "/etc/systemd/system"
	config   = "/etc/cri-evictd/config.yaml"
	socket   = "/run/cri-evictd/cri.sock"
	unitProx = "cri-evictd-proxy.service"
	unitEv   = "cri-evictd.service"
	unitBy   = "cri-evictd-bypass.service"
)

// machine is the machine with everything installed.
type machine struct {
	t       *testing.T
	ctd     *lab.Containerd
	slow    time.Duration // factor for deadlines
	pod     lab.Running   // a pod that must outlive everything
	runtime runtimeapi.RuntimeServiceClient
}

func slowness(t *testing.T) time.Duration {
	n, err := strconv.Atoi(os.Getenv("CRI_EVICTD_E2E_SLOWNESS"))
	if err != nil || n < 1 {
		t.Fatalf("CRI_EVICTD_E2E_SLOWNESS: %v", err)
	}
	return time.Duration(n)
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if _, err := os.Stat(marker); err != nil {
		t.Skip("needs the machine of `make test-vm`: it installs units and kills what they run")
	}
	m := &machine{t: t, slow: slowness(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tools, err := lab.Ensure(ctx, os.Stderr, lab.Debian)
	if err != nil {
		t.Fatal(err)
	}
	dir, remove, err := lab.NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	m.ctd, err = lab.StartContainerd(ctx, lab.ContainerdOptions{Tools: tools, Version: lab.Debian, Dir: dir, ReadyTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.ctd.Cleanup(); err != nil {
			t.Errorf("cleanup: %v", err)
		}
	})
	m.runtime = runtimeapi.NewRuntimeServiceClient(m.dial(m.ctd.Socket))
	return m
}

// install does what `make install` does, with version v1 of the program.
func (m *machine) install() {
	m.t.Helper()
	m.program("v1")
	must(m.t, os.MkdirAll(library, 0o755), os.MkdirAll(filepath.Dir(config), 0o755))
	entries, err := os.ReadDir("../../systemd")
	must(m.t, err)
	for _, e := range entries {
		to := unitDir
		switch filepath.Ext(e.Name()) {
		case ".go":
			continue
		case "":
			to = library
		}
		b, err := os.ReadFile(filepath.Join("../../systemd", e.Name()))
		mode := os.FileMode(0o644)
		if to == library {
			mode = 0o755
		}
		must(m.t, err, os.WriteFile(filepath.Join(to, e.Name()), b, mode))
	}
	m.configure("")
	m.run("systemctl", "daemon-reload")
}

func (m *machine) configure(more string) {
	m.t.Helper()
	text := fmt.Sprintf("apiVersion: cri-evictd.io/v1alpha1\nkind: EvictionConfiguration\nruntimeEndpoint: %s\nhandOverTimeout: 30s\n%s", m.ctd.Socket, more)
	must(m.t, os.WriteFile(config, []byte(text), 0o644))
}

// program puts a version in place by a rename, as a package manager does.
func (m *machine) program(version string) {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(os.Getenv("CRI_EVICTD_E2E_BINARIES"), "cri-evictd"+version))
	must(m.t, err)
	m.file(b)
}

func (m *machine) file(b []byte) {
	m.t.Helper()
	must(m.t, os.WriteFile(program+".part", b, 0o755), os.Rename(program+".part", program))
}

// run runs a command that must succeed.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	out, err := m.try(name, args...)
	if err != nil {
		m.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (m *machine) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute*m.slow)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// property is one of a unit's.
func (m *machine) property(unit, name string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "--property="+name, "--value", unit)
}

func (m *machine) pid(unit string) int {
	m.t.Helper()
	n, err := strconv.Atoi(m.property(unit, "MainPID"))
	must(m.t, err)
	return n
}

// signal sends a signal to a unit's process, which must be there: 0 is this test's
// own group.
func (m *machine) signal(unit string, s syscall.Signal) (pid int) {
	m.t.Helper()
	if pid = m.pid(unit); pid <= 1 {
		m.t.Fatalf("%s has no process", unit)
	}
	must(m.t, syscall.Kill(pid, s))
	return pid
}

func (m *machine) active(unit string) bool { return m.property(unit, "ActiveState") == "active" }

func (m *machine) dial(path string) *grpc.ClientConn {
	m.t.Helper()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(m.t, err)
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (m *machine) eventually(what string, within time.Duration, ok func() bool) time.Duration {
	m.t.Helper()
	begun := time.Now()
	for !ok() {
		if time.Since(begun) > within {
			m.t.Fatalf("%s: not within %s", what, within)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(begun)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// answered says whether a call through kubelet's socket is answered now.
func (m *machine) answered() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second*m.slow)
	defer cancel()
	c, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	_, err = runtimeapi.NewRuntimeServiceClient(c).Version(ctx, &runtimeapi.VersionRequest{})
	return err == nil
}

// load is kubelet at work.
type load struct {
	m      *machine
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu       sync.Mutex
	calls    int
	failed   []error
	last     time.Time // of the last answer
	longest  time.Duration
	connects []error
}

// load lists every 100 ms, runs commands that take seconds in the pod, follows
// events, and connects anew all the time.
func (m *machine) load() *load {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{m: m, cancel: cancel, last: time.Now()}
	rt := runtimeapi.NewRuntimeServiceClient(m.dial(socket))
	every := func(pause time.Duration, call func(context.Context) error) {
		l.all.Go(func() {
			for ctx.Err() == nil {
				one, stop := context.WithTimeout(ctx, 2*time.Minute)
				err := call(one)
				stop()
				if ctx.Err() == nil {
					l.note(err)
				}
				sleep(ctx, pause)
			}
		})
	}
	every(100*time.Millisecond, func(ctx context.Context) error {
		_, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err == nil {
			l.answer()
		}
		return err
	})
	every(time.Second, func(ctx context.Context) error {
		_, err := rt.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: m.pod.ContainerIDs[0], Timeout: 60,
			Cmd: []string{"/workload", "write", "--dir", "/tmp", "--total", "64Ki", "--rate", "32Ki", "--hold=false"}})
		return err
	})
	l.all.Go(func() {
		for ctx.Err() == nil {
			stream, err := rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
			for err == nil {
				_, err = stream.Recv()
			}
			sleep(ctx, 200*time.Millisecond)
		}
	})
	l.all.Go(func() {
		for ctx.Err() == nil {
			c, err := dialer.DialContext(ctx, "unix", socket)
			if err == nil {
				err = c.Close()
			}
			if err != nil && ctx.Err() == nil {
				l.mu.Lock()
				l.connects = append(l.connects, err)
				l.mu.Unlock()
			}
			sleep(ctx, 500*time.Millisecond)
		}
	})
	m.t.Cleanup(l.stop)
	return l
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (l *load) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if err != nil {
		l.failed = append(l.failed, fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err))
	}
}

func (l *load) answer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.longest, l.last = max(l.longest, now.Sub(l.last)), now
}

// result is what was seen since the load began.
type result struct {
	calls           int
	failed          []error
	connects        []error
	withoutAnAnswer time.Duration
}

func (l *load) stop() {
	l.cancel()
	l.all.Wait()
}

// end stops the load and says what came of it.
func (l *load) end() result {
	l.m.t.Helper()
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	r := result{calls: l.calls, failed: l.failed, connects: l.connects, withoutAnAnswer: l.longest}
	l.m.t.Logf("%d calls, %d failed, %d connects failed, longest time without an answer %s", r.calls, len(r.failed), len(r.connects), r.withoutAnAnswer)
	for i, err := range r.failed {
		if i < 5 {
			l.m.t.Logf("failed: %v", err)
		}
	}
	return r
}
