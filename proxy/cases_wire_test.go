package proxy

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/rawh2"
)

// kubelet stops reading its events while 5,000 come: the runtime is stopped by
// flow control, we buffer no more than the windows, unary calls go on, and all
// events arrive when kubelet reads again.
func TestCaseB87EventStreamIsNotRead(t *testing.T) {
	const events, size = 5000, 1500
	w := newWire(t, rawh2.Options{Hold: true}, nil)
	event := message(make([]byte, size))
	w.play(func(ctx context.Context, s *rawh2.Stream) {
		s.Headers(false, answerHeader()...)
		for range events {
			if s.Data(ctx, false, event) != nil {
				return
			}
		}
		s.Headers(true, trailers("0", "")...)
	})
	before := heapInUse()
	c := w.open(w.through, false, request("/runtime.v1.RuntimeService/GetContainerEvents"))
	if err := c.Data(w.ctx(), true, message(nil)); err != nil {
		t.Fatal(err)
	}
	w.awaitServer(c)
	if sent := atRest(t, c.server); sent > 2<<20 {
		t.Errorf("%d KiB of events were taken from the runtime", sent>>10)
	}
	if grown := int64(heapInUse()) - int64(before); grown > 8<<20 {
		t.Errorf("the heap grew by %d KiB", grown>>10)
	}
	other := w.open(w.dialRaw(w.proxy.opts.Listen.Path, rawh2.Options{}), false, request("/runtime.v1.RuntimeService/GetContainerEvents"))
	if err := other.Data(w.ctx(), true, message(nil)); err != nil {
		t.Fatal(err)
	}
	if r, err := other.Over(w.ctx()); err != nil || len(r.Bytes()) != events*len(event) {
		t.Errorf("another reader: %v, %d bytes", err, len(r.Bytes()))
	}
	c.Release()
	if r, err := c.Over(w.ctx()); err != nil || len(r.Bytes()) != events*len(event) || r.Get("grpc-status") != "0" {
		t.Errorf("reading again: %v, %d bytes of %d, status %q", err, len(r.Bytes()), events*len(event), r.Get("grpc-status"))
	}
}

// unprivilegedEnv makes this test binary a proxy, for running it as another user.
const unprivilegedEnv = "CRI_EVICTD_PROXY_DIR"

// serveProxy runs a proxy in dir until standard input ends and logs to standard
// error.
func serveProxy(dir string) int {
	log := logrus.New()
	log.SetOutput(os.Stderr)
	p, err := New(Options{
		Listen:   cri.Endpoint{Path: filepath.Join(dir, "own", "p.sock")},
		Upstream: cri.Endpoint{Path: filepath.Join(dir, "cri.sock")}, Log: log,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that is waited for
		cancel()
	}()
	if err := p.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The runtime's socket may not be opened by the proxy: that is said at once with
// both sides' identity, calls do not hang once their deadline is over, and it is
// tried again until it may.
func TestCaseB93NoAccessToTheRuntime(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a proxy as another user")
	}
	const nobody = 65534
	r := &rig{t: t, dir: shortDir(t)}
	var err error
	if r.runtime, err = fakecri.Start(fakecri.Options{Dir: r.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.runtime.Close)
	socket := r.runtime.Endpoint().Path
	exe := filepath.Join(r.dir, "exe")
	own := filepath.Join(r.dir, "own")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(exe, binary, 0o755), os.Mkdir(own, 0o755), os.Chown(own, nobody, nobody), os.Chmod(r.dir, 0o755), os.Chmod(socket, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	logs, err := os.Create(filepath.Join(r.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = logs.Close() }()
	cmd := exec.Command(exe)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), unprivilegedEnv+"="+r.dir)
	cmd.Stderr = logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the proxy: %v", err)
		}
	}()
	want := []string{"no access to " + socket, "uid 65534 gid 65534", "uid 0 gid 0", "mode 0600"}
	eventually(t, "the reason is said", func() bool {
		b, err := os.ReadFile(logs.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(string(b), w) {
				return false
			}
		}
		return true
	})
	r.through = r.dial(cri.Endpoint{Path: filepath.Join(own, "p.sock")})
	ctx, cancel := context.WithTimeout(r.ctx(), 300*time.Millisecond)
	defer cancel()
	if _, err := r.cri().Version(ctx, &runtimeapi.VersionRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("before the first connection: %v", err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("with access: %v", err)
	}
}
