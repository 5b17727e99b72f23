package proxy

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// processEnv makes this test binary a fake runtime in a process of its own, for
// what happens to processes: SIGKILL, SIGSTOP, another one at the same path.
const processEnv = "CRI_EVICTD_FAKE_RUNTIME_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(processEnv); dir != "" {
		os.Exit(serveFake(dir))
	}
	if dir := os.Getenv(unprivilegedEnv); dir != "" {
		os.Exit(serveProxy(dir))
	}
	os.Exit(m.Run())
}

// serveFake serves until its standard input ends.
func serveFake(dir string) int {
	s, err := fakecri.Start(fakecri.Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.Inject("Version", fakecri.Fault{Header: metadata.Pairs("x-pid", fmt.Sprint(os.Getpid()))})
	fmt.Println("serving")
	_, _ = io.Copy(io.Discard, os.Stdin) // its end is all that is waited for
	return 0
}

// otherProcess starts a fake runtime in a process of its own.
func (r *rig) otherProcess() *exec.Cmd {
	r.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), processEnv+"="+r.dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "serving\n" {
		r.t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd
}
