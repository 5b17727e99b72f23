package handover

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

func TestServiceManagerIsToldOfEverything(t *testing.T) {
	r := newRig(t, "handOverTimeout: 1s")
	m := newManager(t, r.dir)
	s := r.start("proxy", "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=400000")
	if state, _ := m.next(t); state != "READY=1" {
		t.Fatalf("first %q", state)
	}
	fed := func(what string) {
		t.Helper()
		for range 3 {
			if state, ok := m.receive(patience); !ok || state != "WATCHDOG=1" {
				t.Fatalf("%s: %q", what, state)
			}
		}
	}
	fed("after the start")
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if state, _ := m.next(t); !strings.HasPrefix(state, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Fatalf("reload: %q", state)
	}
	if state, _ := m.next(t); state != "READY=1" {
		t.Fatalf("after the reload: %q", state)
	}
	r.install("v2")
	o := r.mustUpgrade()
	if state, _ := m.next(t); state != fmt.Sprintf("MAINPID=%d\nREADY=1\nWATCHDOG=1", o.New.PID) {
		t.Fatalf("hand-over: %q", state)
	}
	eventually(t, "the old one has ended", func() bool { return !alive(s.cmd.Process.Pid) })
	fed("by the new process")
	// Nobody but the service's own process feeds: when that stands still, silence.
	if err := syscall.Kill(o.New.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nobody feeds", func() bool { _, ok := m.receive(500 * time.Millisecond); return !ok })
	if err := syscall.Kill(o.New.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	fed("after SIGCONT")
	if err := syscall.Kill(o.New.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if state, _ := m.next(t); state != "STOPPING=1" {
		t.Fatalf("end: %q", state)
	}
}

// A socket of the service manager's: whoever connects before the start is answered,
// and the file stays when the process ends.
func TestSocketActivation(t *testing.T) {
	r := newRig(t, "")
	l, err := net.Listen("unix", r.path("cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	early := runtimeapi.NewRuntimeServiceClient(r.conn())
	go func() {
		_, err := early.Version(t.Context(), &runtimeapi.VersionRequest{})
		answered <- err
	}()
	for range 3 {
		var log lab.Output
		// LISTEN_PID is the pid that exec keeps.
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=cri exec "$0" "$@"`, r.program, "proxy", "--config", r.path("config.yaml"))
		cmd.ExtraFiles = []*os.File{f}
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.serving()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, log.String())
		}
		if _, err := os.Lstat(r.path("cri.sock")); err != nil {
			t.Fatalf("the service manager's socket: %v", err)
		}
	}
	if err := <-answered; err != nil {
		t.Errorf("a call from before the first start: %v", err)
	}
}

// An evictor's watchdog is fed by its sampler, whatever the ledger does.
func TestEvictorIsWatched(t *testing.T) {
	r := newRig(t, "")
	m := newManager(t, r.dir)
	r.start("evict", "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=8000000")
	if state, _ := m.next(t); state != "READY=1" {
		t.Fatalf("first %q", state)
	}
	for range 2 {
		if state, ok := m.receive(patience); !ok || state != "WATCHDOG=1" {
			t.Fatalf("%q", state)
		}
	}
}
