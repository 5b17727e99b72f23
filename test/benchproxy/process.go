package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one program of the set-up, started by us and ended with us.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	ended chan struct{}
}

// start runs args and waits until socket accepts connections. What the program
// logs goes to log.
func start(ctx context.Context, log io.Writer, socket string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// The death signal is tied to the thread that starts the child.
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, out: bufio.NewScanner(out), ended: make(chan struct{})}
	go func() {
		_, _ = cmd.Process.Wait()
		close(p.ended)
	}()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		if conn, err := net.Dial("unix", socket); err == nil {
			_ = conn.Close()
			return p, nil
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s ended at once", strings.Join(args, " "))
		case <-deadline.C:
			p.stop()
			return nil, fmt.Errorf("%s does not listen on %s", strings.Join(args, " "), socket)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop asks for the end and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(3 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// cpu is the user and system time the process has used so far, from its CPU
// clock: the same sum as in /proc/PID/stat, in nanoseconds instead of ticks.
func (p *process) cpu() (time.Duration, error) {
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^p.pid()<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("cpu clock of %d: %w", p.pid(), err)
	}
	return time.Duration(ts.Nano()), nil
}

// rssAnon is the anonymous memory of the process in bytes.
func (p *process) rssAnon() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no RssAnon")
}

// peak samples rssAnon until the returned function is called, which gives the
// largest value.
func (p *process) peak() (end func() int64) {
	stop := make(chan struct{})
	var largest int64
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			if v, err := p.rssAnon(); err == nil {
				largest = max(largest, v)
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	return func() int64 {
		close(stop)
		done.Wait()
		return largest
	}
}

// allocations asks one of our own programs how much it has allocated so far.
func (p *process) allocations() (count, bytes uint64, err error) {
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return 0, 0, err
	}
	if !p.out.Scan() {
		return 0, 0, fmt.Errorf("no answer: %w", p.out.Err())
	}
	_, err = fmt.Sscan(p.out.Text(), &count, &bytes)
	return count, bytes, err
}

// tellAllocations answers allocations; it ends with the pipe.
func tellAllocations() {
	in := bufio.NewScanner(os.Stdin)
	var m runtime.MemStats
	for in.Scan() {
		runtime.ReadMemStats(&m)
		fmt.Println(m.Mallocs, m.TotalAlloc)
	}
}
