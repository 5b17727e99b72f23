package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	usualPath    = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	stopTimeout  = 10 * time.Second // from SIGTERM to SIGKILL
	pollInterval = 20 * time.Millisecond
)

// program is a daemon of the lab: its output goes to a file over all its
// starts, and it is signalled through the handle of its own process only.
type program struct {
	name string // for messages
	path string
	args []string
	dir  string // working folder
	// env is the whole environment, small, so that no variable of the caller
	// changes anything; nil for PATH and HOME.
	env     []string
	logFile string
	ready   time.Duration // how long it may take to be ready

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd was reaped
}

// start runs the program and returns when ready succeeds. ctx bounds the wait
// only. After an error the program does not run.
func (p *program) start(ctx context.Context, ready func(context.Context) error) error {
	logFile, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	defer func() { _ = logFile.Close() }() // the program has its own descriptor
	// Not bound to ctx: it has to survive a cancelled test until it is stopped.
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = logFile, logFile, p.dir
	if cmd.Env = p.env; cmd.Env == nil {
		cmd.Env = []string{"PATH=" + usualPath, "HOME=" + p.dir}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the caller
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("lab: start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in its log
	}()
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	if err := p.await(ctx, p.name+" to be ready", ready); err != nil {
		return errors.Join(err, p.stop())
	}
	return nil
}

// await repeats ready until it succeeds, the program ends, or the time for its
// start is up.
func (p *program) await(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.ready)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	done := p.exited()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("lab: %s ended while waiting for %s:\n%s", p.name, what, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("lab: waiting for %s: %w (last: %w)\n%s", what, ctx.Err(), err, p.logTail())
		case <-ticker.C:
		}
	}
}

// stop ends the program with SIGTERM, and with SIGKILL after 10 s. It is no
// error if it does not run.
func (p *program) stop() error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited():
		return nil
	case <-timer.C:
	}
	return p.kill()
}

// kill ends the program with SIGKILL and waits until it is gone.
func (p *program) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited()
	return nil
}

func (p *program) signal(sig syscall.Signal) error {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	// os.Process holds a pidfd: no other process can be hit.
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("lab: signal %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// exited returns a channel that is closed when the program does not run.
func (p *program) exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return p.done
}

// pid returns the process id, 0 when it does not run.
func (p *program) pid() int {
	select {
	case <-p.exited():
		return 0
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

func (p *program) logTail() string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return lastLines(b, 15)
}

// freePorts returns TCP ports of the loopback interface that nobody listened on
// a moment ago.
func freePorts(n int) ([]int, error) {
	var ports []int
	var open []net.Listener
	defer func() {
		for _, l := range open {
			_ = l.Close() // nothing was accepted
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
		open = append(open, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// mkdirs makes folders of the lab.
func mkdirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	return nil
}

// writeFiles writes files of the lab below dir.
func writeFiles(dir string, files map[string][]byte) error {
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	return nil
}
