package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/golden"
)

var _ = golden.Flag()

// deadline bounds every wait; nothing takes that long unless it is broken.
const deadline = 30 * time.Second

const (
	burstableUID = "11111111-2222-3333-4444-555555555555"
	v2Tree       = "v2-systemd"
)

// node is a made-up machine: a checked-in tree, a fake runtime and directories
// of its own.
type node struct {
	t       *testing.T
	dir     string // short: sockets are in it
	tree    string // copy of a checked-in tree; what is evicted is nobody's
	runtime *fakecri.Server
}

func newNode(t *testing.T, tree string, opts fakecri.Options) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "ce")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, tree: filepath.Join(dir, "tree")}
	if err := os.CopyFS(n.tree, os.DirFS(filepath.Join("../../cgroupfs/testdata", tree))); err != nil {
		t.Fatal(err)
	}
	opts.Dir = filepath.Join(dir, "rt")
	if err := os.Mkdir(opts.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if n.runtime, err = fakecri.Start(opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.runtime.Close)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// config writes the configuration; later lines of extra are added to it.
func (n *node) config(extra string) string {
	n.t.Helper()
	if !strings.Contains(extra, "metricsBindAddress") {
		extra = "metricsBindAddress: \"\" # tests run side by side\n" + extra
	}
	text := fmt.Sprintf(`apiVersion: cri-evictd.io/v1alpha1
kind: EvictionConfiguration
listen: %[1]s/cri.sock
runtimeEndpoint: %[2]s
adminSocket: %[1]s/admin.sock
stateDir: %[1]s/state
runDir: %[1]s/run
kubeletRootDir: %[1]s/kubelet
%[3]s`, n.dir, n.runtime.Endpoint(), extra)
	return n.write("config.yaml", text)
}

func (n *node) write(name, text string) string {
	n.t.Helper()
	file := n.path(name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return file
}

// edit writes a file of the tree, below proc or cgroup.
func (n *node) edit(name, text string) {
	n.t.Helper()
	file := filepath.Join(n.tree, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// roots are the flags that make the program read the tree.
func (n *node) roots() []string {
	return []string{"--path.procfs", n.tree + "/proc", "--path.cgroupfs", n.tree + "/cgroup"}
}

// normal replaces what differs from run to run.
func (n *node) normal(s string) string { return strings.ReplaceAll(s, n.dir, "$DIR") }

// logBuffer collects a log of JSON lines and tells of changes.
type logBuffer struct {
	mu     sync.Mutex
	b      bytes.Buffer
	change chan struct{}
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.change != nil {
		close(l.change)
		l.change = nil
	}
	return l.b.Write(p)
}

// next returns what was written and what is closed when there is more.
func (l *logBuffer) next() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.change == nil {
		l.change = make(chan struct{})
	}
	return l.b.String(), l.change
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// lines are the messages of one level, with the error where there is one.
func (l *logBuffer) lines(level string) []string {
	var out []string
	for _, line := range strings.Split(l.String(), "\n") {
		var e struct{ Level, Msg, Error string }
		if json.Unmarshal([]byte(line), &e) != nil || e.Level != level {
			continue
		}
		if e.Error != "" {
			e.Msg += ": " + e.Error
		}
		out = append(out, e.Msg)
	}
	return out
}

// daemon is one run of the program in this process.
type daemon struct {
	n      *node
	log    logBuffer
	cancel context.CancelFunc
	done   chan int
	code   int
	once   sync.Once
}

// start runs serve, proxy or evict.
func (n *node) start(command string, args ...string) *daemon {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &daemon{n: n, cancel: cancel, done: make(chan int, 1)}
	args = append([]string{command, "--log-format", "json"}, args...)
	go func() { d.done <- run(ctx, args, &d.log, &d.log) }()
	n.t.Cleanup(func() {
		d.stop()
		if n.t.Failed() {
			n.t.Logf("log of %s:\n%s", command, &d.log)
		}
	})
	return d
}

// serve runs serve with a configuration and waits until it listens.
func (n *node) serve(extra string) *daemon {
	n.t.Helper()
	d := n.start("serve", append(n.roots(), "--config", n.config(extra))...)
	d.waitFor("proxy listens")
	return d
}

// stop ends the daemon as a signal does and returns its exit code.
func (d *daemon) stop() int {
	d.n.t.Helper()
	d.cancel()
	return d.wait()
}

// wait waits until the daemon has ended.
func (d *daemon) wait() int {
	d.n.t.Helper()
	d.once.Do(func() {
		select {
		case d.code = <-d.done:
		case <-time.After(deadline):
			d.n.t.Error("the daemon does not end")
			d.code = -1
		}
	})
	return d.code
}

// waitFor waits for a text in the log.
func (d *daemon) waitFor(text string) {
	d.n.t.Helper()
	end := time.After(deadline)
	for {
		got, more := d.log.next()
		if strings.Contains(got, text) {
			return
		}
		select {
		case <-more:
		case d.code = <-d.done:
			d.once.Do(func() {})
			if !strings.Contains(d.log.String(), text) {
				d.n.t.Fatalf("ended with %d before it said %q:\n%s", d.code, text, &d.log)
			}
			return
		case <-end:
			d.n.t.Fatalf("does not say %q:\n%s", text, &d.log)
		}
	}
}

// eventually waits for a condition that nothing tells of.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(deadline); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// client talks through the daemon's socket, as kubelet does.
func (n *node) client() *cri.Client {
	n.t.Helper()
	c, err := cri.Dial(cri.Endpoint{Path: n.path("cri.sock")})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// mustFlow fails unless calls reach the runtime through the daemon's socket.
func (n *node) mustFlow() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	v, err := n.client().Version(ctx)
	if err != nil || v.GetRuntimeName() != "fake" {
		n.t.Errorf("calls do not flow: %v %v", v, err)
	}
}

func sandboxRequest(uid, name, parent string, attempt uint32) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "default", Name: name, Uid: uid, Attempt: attempt},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent},
	}}
}

// command runs one command that ends by itself.
func command(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	code = run(ctx, args, &o, &e)
	return code, o.String(), e.String()
}

// healthy says that status answers and finds nothing wrong, apart from what the
// user who runs the tests may not do.
func (n *node) healthy() bool {
	code, out, _ := command(n.t, "status", "-o", "json", "--admin-socket", n.path("admin.sock"))
	var s admin.Status
	if json.Unmarshal([]byte(out), &s) != nil {
		return false
	}
	if (code == exitOK) != (len(s.Problems) == 0) {
		n.t.Errorf("exit %d with problems %q", code, s.Problems)
	}
	return !slices.ContainsFunc(s.Problems, func(p string) bool { return !strings.Contains(p, noRealtime) })
}

// noRealtime is part of what is said where SCHED_FIFO is not permitted.
const noRealtime = "SCHED_FIFO"

// socketsIn are the sockets left in a directory.
func socketsIn(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSocket {
			out = append(out, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
