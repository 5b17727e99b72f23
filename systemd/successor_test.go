package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// successorAct is what this test binary does as a successor.
const successorAct = "CRI_EVICTD_TEST_SUCCESSOR"

const patience = time.Minute

func TestMain(m *testing.M) {
	if act := os.Getenv(successorAct); act != "" {
		os.Exit(succeed(act))
	}
	os.Exit(m.Run())
}

// succeed is a successor's process.
func succeed(act string) int {
	start, err := Inherit()
	if err != nil || start.Predecessor == nil {
		fmt.Fprintln(os.Stderr, "no predecessor", err)
		return 3
	}
	switch act {
	case "crash":
		return 7
	case "hang":
		select {}
	}
	if _, again := os.LookupEnv(successorEnv); again {
		return 4
	}
	for _, name := range []string{"LISTEN_FDS", "WATCHDOG_PID"} {
		if _, there := os.LookupEnv(name); there {
			return 5
		}
	}
	l, err := net.FileListener(start.Sockets["cri"])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 6
	}
	go func() { // one line to everybody who connects
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "successor") // a test that does not get it fails
			_ = c.Close()
		}
	}()
	if start.Predecessor.Say(WordPrepared) != nil || start.Predecessor.Say(WordReady, "v2") != nil {
		return 8
	}
	<-start.Predecessor.Main()
	_ = start.Predecessor.Say("I am") // of no use to a predecessor that is gone
	<-start.Predecessor.Gone()
	return 0
}

func startSuccessor(t *testing.T, act string, sockets map[string]*os.File) *Successor {
	t.Helper()
	t.Setenv(successorAct, act)
	t.Setenv("LISTEN_FDS", "1")
	t.Setenv("WATCHDOG_PID", "1")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s, err := StartSuccessor(exe, []string{"-test.run=^$"}, sockets)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func TestSuccessorServesTheSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "su")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	s := startSuccessor(t, "serve", map[string]*os.File{"cri": f})
	_ = f.Close() // a copy
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.Await(ctx, WordPrepared); err != nil {
		t.Fatal(err)
	}
	version, err := s.Await(ctx, WordReady)
	if err != nil || version != "v2" {
		t.Fatalf("ready %q, %v", version, err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close() // the successor has its own
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "successor" {
		t.Errorf("answered %q, %v", b, err)
	}
	if err := s.MakeMain(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Await(ctx, "I"); err != nil {
		t.Errorf("was not made main: %v", err)
	}
	// We end, as far as it can see.
	_ = s.control.Close()
	select {
	case <-s.Ended():
		if !errors.Is(s.err, ErrSuccessorEnded) || s.err.Error() != ErrSuccessorEnded.Error() {
			t.Errorf("ended with %v", s.err)
		}
	case <-ctx.Done():
		t.Error("it does not see that we are gone")
	}
}

func TestSuccessorThatDoesNotComeUp(t *testing.T) {
	crashed := startSuccessor(t, "crash", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := crashed.Await(ctx, WordReady); !errors.Is(err, ErrSuccessorEnded) || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("one that crashes: %v", err)
	}
	hanging := startSuccessor(t, "hang", nil)
	short, cancelShort := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelShort()
	if _, err := hanging.Await(short, WordReady); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that hangs: %v", err)
	}
	hanging.Kill()
	hanging.Kill() // once more does no harm
	if _, err := StartSuccessor("/nonexistent/cri-evictd", nil, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

func TestNoPredecessorIsGone(t *testing.T) {
	var none *Predecessor
	if err := none.Say(WordReady); err != nil {
		t.Error(err)
	}
	for _, c := range []<-chan struct{}{none.Gone(), none.Main()} {
		select {
		case <-c:
		default:
			t.Error("not closed")
		}
	}
}
