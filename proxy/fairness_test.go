package proxy

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// fairnessEnv makes the test binary the process under test; see
// TestFloodDoesNotStarveOthers.
const fairnessEnv = "CRI_EVICTD_FAIRNESS_SOCKET"

// One peer that never makes us wait must not keep the only Go processor (the proxy
// runs with one) from all others: Go's monitor thread, which would interrupt the
// reading goroutine, sleeps for up to a minute beside an idle process, and reads
// that are not announced do not wake it.
func TestFloodDoesNotStarveOthers(t *testing.T) {
	if path := os.Getenv(fairnessEnv); path != "" {
		readForever(t, path)
		return
	}
	path := filepath.Join(shortDir(t), "s")
	child := exec.Command(os.Args[0], "-test.run=^TestFloodDoesNotStarveOthers$")
	child.Env = append(os.Environ(), fairnessEnv+"="+path, "GOMAXPROCS=1")
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	dial := func() net.Conn {
		for end := time.Now().Add(30 * time.Second); ; {
			c, err := net.Dial("unix", path)
			if err == nil {
				return c
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	quiet := dial()
	defer func() { _ = quiet.Close() }()
	// Several, so that the other side's reads never have to wait. They are there
	// before: accepting one would wake the monitor thread.
	var floods []net.Conn
	for range 4 {
		c := dial()
		defer func() { _ = c.Close() }()
		floods = append(floods, c)
	}
	echo := make([]byte, 1)
	ask := func() error {
		if err := quiet.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
			return err
		}
		if _, err := quiet.Write(echo); err != nil {
			return err
		}
		_, err := io.ReadFull(quiet, echo)
		return err
	}
	if err := ask(); err != nil {
		t.Fatalf("before the flood: %v", err)
	}
	time.Sleep(200 * time.Millisecond) // the process goes idle, its monitor thread to sleep
	for _, c := range floods {
		go func() {
			chunk := make([]byte, 64<<10)
			for {
				if _, err := c.Write(chunk); err != nil {
					return
				}
			}
		}()
	}
	time.Sleep(100 * time.Millisecond)
	var longest time.Duration
	for range 100 {
		asked := time.Now()
		if err := ask(); err != nil {
			t.Fatalf("beside a flood: %v", err)
		}
		longest = max(longest, time.Since(asked))
	}
	t.Logf("longest answer beside a flood: %v", longest)
}

// readForever reads from every connection, and from the first one sends back what
// comes. There is no timer in this process.
func readForever(t *testing.T, path string) {
	plain, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l := bareListener{plain}
	for first := true; ; first = false {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			// So small that whoever writes is always ahead.
			buf := make([]byte, 8)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if first {
					_, _ = c.Write(buf[:n])
				}
			}
		}()
	}
}
