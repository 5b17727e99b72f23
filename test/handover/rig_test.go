// Package handover replaces processes of the built program by others of another
// version, under load, in front of a fake runtime. What systemd adds to that is
// tried in test/vm.
package handover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// patience bounds every wait; nothing takes that long unless it is broken.
const patience = time.Minute

// dialEnv makes this test binary one that dials a socket; see
// TestOtherUsersReachNoSocket.
const dialEnv = "CRI_EVICTD_TEST_DIAL"

// builds are the programs under test: two versions, made once.
var builds struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	if socket := os.Getenv(dialEnv); socket != "" {
		os.Exit(dial(socket))
	}
	code := m.Run()
	if builds.dir != "" {
		_ = os.RemoveAll(builds.dir)
	}
	os.Exit(code)
}

// build returns the folder with the programs v1 and v2.
func build(t *testing.T) string {
	t.Helper()
	builds.once.Do(func() {
		if builds.dir, builds.err = os.MkdirTemp("", "ho"); builds.err != nil {
			return
		}
		for _, v := range []string{"v1", "v2"} {
			cmd := exec.Command("go", "build", "-ldflags", "-X main.release="+v, "-o", filepath.Join(builds.dir, v),
				"github.com/cri-evictd/cri-evictd/cmd/cri-evictd")
			if out, err := cmd.CombinedOutput(); err != nil {
				builds.err = fmt.Errorf("building %s: %w\n%s", v, err, out)
				return
			}
		}
	})
	if builds.err != nil {
		t.Fatal(builds.err)
	}
	return builds.dir
}

// rig is a node with a fake runtime and the program installed.
type rig struct {
	t       *testing.T
	dir     string // short: sockets are in it
	runtime *fakecri.Server
	program string
	tree    string
}

func newRig(t *testing.T, config string) *rig {
	t.Helper()
	build(t)
	dir, err := os.MkdirTemp("", "hr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, program: filepath.Join(dir, "cri-evictd"), tree: filepath.Join(dir, "tree")}
	if err := os.CopyFS(r.tree, os.DirFS("../../cgroupfs/testdata/v2-systemd")); err != nil {
		t.Fatal(err)
	}
	rt := filepath.Join(dir, "rt")
	if err := os.Mkdir(rt, 0o711); err != nil {
		t.Fatal(err)
	}
	if r.runtime, err = fakecri.Start(fakecri.Options{Dir: rt}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.runtime.Close)
	text := lab.Config(dir, r.runtime.Endpoint().String(), config)
	if err := os.WriteFile(r.path("config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.install("v1")
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// install puts a version in place as a package manager does: by a rename.
func (r *rig) install(version string) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(build(r.t), version))
	if err != nil {
		r.t.Fatal(err)
	}
	r.installFile(b)
}

func (r *rig) installFile(b []byte) {
	r.t.Helper()
	part := r.program + ".part"
	if err := os.WriteFile(part, b, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(part, r.program); err != nil {
		r.t.Fatal(err)
	}
}

// service is the processes of one half, as a service manager sees them.
type service struct {
	r    *rig
	cmd  *exec.Cmd
	log  lab.Output
	done chan struct{}
}

// start runs serve, proxy or evict. All its processes end with the test.
func (r *rig) start(command string, env ...string) *service {
	r.t.Helper()
	s := &service{r: r, done: make(chan struct{})}
	s.cmd = exec.Command(r.program, command, "--config", r.path("config.yaml"),
		"--path.procfs", r.tree+"/proc", "--path.cgroupfs", r.tree+"/cgroup")
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // successors keep its output open; see WaitDelay
		close(s.done)
	}()
	r.t.Cleanup(func() {
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // the group: gone is fine
		<-s.done
		if r.t.Failed() {
			r.t.Logf("log of %s:\n%s", command, s.log.String())
		}
	})
	return s
}

// outcome is what `cri-evictd upgrade -o json` says of one half.
type outcome struct {
	Part     string
	Old, New struct {
		PID     int
		Version string
	}
	Error string
}

// upgrade runs the command and returns its exit code.
func (r *rig) upgrade() ([]outcome, int) {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(build(r.t), "v1"), "upgrade", "-o", "json", "--proxy-socket", r.path("run/proxy.sock"), "--admin-socket", r.path("admin.sock"))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run() // its code is looked at
	var results []outcome
	if err := json.Unmarshal(out.Bytes(), &results); err != nil {
		r.t.Fatalf("upgrade says %q, %q: %v", out.String(), errOut.String(), err)
	}
	return results, cmd.ProcessState.ExitCode()
}

// mustUpgrade upgrades and returns the processes of the only half.
func (r *rig) mustUpgrade() outcome {
	r.t.Helper()
	results, code := r.upgrade()
	if code != 0 || len(results) != 1 || results[0].Error != "" {
		r.t.Fatalf("exit %d: %+v", code, results)
	}
	return results[0]
}

// conn is a new connection to kubelet's socket.
func (r *rig) conn() *grpc.ClientConn {
	r.t.Helper()
	c, err := grpc.NewClient("unix://"+r.path("cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// serving waits until calls are answered.
func (r *rig) serving() runtimeapi.RuntimeServiceClient {
	r.t.Helper()
	cri := runtimeapi.NewRuntimeServiceClient(r.conn())
	eventually(r.t, "calls are answered", func() bool {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		_, err := cri.Version(ctx, &runtimeapi.VersionRequest{})
		return err == nil
	})
	return cri
}

// adminPID is the process that answers on the admin socket, 0 for none.
func (r *rig) adminPID() int {
	out, _ := exec.Command(filepath.Join(build(r.t), "v1"), "status", "-o", "json", "--admin-socket", r.path("admin.sock")).Output()
	var s struct{ PID int }
	_ = json.Unmarshal(out, &s) // none is 0
	return s.PID
}

// manager is a service manager's socket.
type manager struct {
	conn *net.UnixConn
	path string
}

func newManager(t *testing.T, dir string) *manager {
	t.Helper()
	m := &manager{path: filepath.Join(dir, "notify")}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.conn.Close() })
	return m
}

// next returns the next message that is no feeding of the watchdog, and how many of
// those came first.
func (m *manager) next(t *testing.T) (state string, fed int) {
	t.Helper()
	for {
		state, ok := m.receive(patience)
		switch {
		case !ok:
			t.Fatal("the service manager is told nothing")
		case state == "WATCHDOG=1":
			fed++
		default:
			return state, fed
		}
	}
}

func (m *manager) receive(within time.Duration) (string, bool) {
	b := make([]byte, 4096)
	if m.conn.SetReadDeadline(time.Now().Add(within)) != nil {
		return "", false
	}
	n, err := m.conn.Read(b)
	return string(b[:n]), err == nil
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// alive says whether a process is there and no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}
