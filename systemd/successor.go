package systemd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrSuccessorEnded is wrapped by the errors about a successor that is no more.
var ErrSuccessorEnded = errors.New("it ended")

// Successor is the process that is to take over from this one.
type Successor struct {
	PID     int
	process *os.Process
	control *os.File
	words   chan string
	// ended is closed when the process is no more; then err says how.
	ended chan struct{}
	err   error
}

// StartSuccessor starts a program with copies of the sockets. It belongs to the
// same service: what it writes goes where ours does.
func StartSuccessor(path string, args []string, sockets map[string]*os.File) (*Successor, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	control, theirs := os.NewFile(uintptr(fds[0]), "successor"), os.NewFile(uintptr(fds[1]), "predecessor")
	defer func() { _ = theirs.Close() }()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	var names []string
	for name, f := range sockets {
		names = append(names, name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.Env = successorEnviron(os.Environ(), names)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", path, err), control.Close())
	}
	s := &Successor{PID: cmd.Process.Pid, process: cmd.Process, control: control, words: make(chan string), ended: make(chan struct{})}
	go s.listen()
	go func() {
		s.err = ErrSuccessorEnded
		if err := cmd.Wait(); err != nil {
			s.err = fmt.Errorf("%w: %w", ErrSuccessorEnded, err)
		}
		close(s.ended)
	}()
	return s, nil
}

// successorEnviron is the environment of a successor: ours without what is about
// this very process.
func successorEnviron(environ, names []string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "LISTEN_") || name == "WATCHDOG_PID" || name == successorEnv
	})
	return append(environ, successorEnv+"="+strings.Join(names, nameSeparator))
}

// listen ends with the process.
func (s *Successor) listen() {
	in := bufio.NewScanner(s.control)
	for in.Scan() {
		select {
		case s.words <- in.Text():
		case <-s.ended:
			return
		}
	}
}

// Await waits until the process says word and returns what followed it. An error
// wraps ErrSuccessorEnded, or is that of ctx.
func (s *Successor) Await(ctx context.Context, word string) (rest string, err error) {
	for {
		select {
		case line := <-s.words:
			if first, rest, _ := strings.Cut(line, " "); first == word {
				return rest, nil
			}
		case <-s.ended:
			return "", s.err
		case <-ctx.Done():
			return "", fmt.Errorf("it did not get as far as %q: %w", word, ctx.Err())
		}
	}
}

// MakeMain tells the process that it is the service now.
func (s *Successor) MakeMain() error {
	if _, err := fmt.Fprintln(s.control, wordMain); err != nil {
		return fmt.Errorf("telling the successor: %w", err)
	}
	return nil
}

// Ended is closed when the process is no more.
func (s *Successor) Ended() <-chan struct{} { return s.ended }

// Kill ends the process and waits for that. One that has ended already is fine.
func (s *Successor) Kill() {
	_ = s.process.Kill() // an error says that it is no more
	<-s.ended
	_ = s.control.Close() // nobody is at the other end
}
