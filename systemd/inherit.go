package systemd

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"
)

const (
	// successorEnv has the names of the sockets that a successor gets from
	// firstSocketFD on. LISTEN_FDS would need LISTEN_PID, which is not known
	// before the process is there.
	successorEnv  = "CRI_EVICTD_SUCCESSOR"
	controlFD     = 3
	firstSocketFD = 4
	nameSeparator = ":"
)

// What the two processes of a hand-over say to each other, a line each.
const (
	// WordPrepared: all that can be had beside the old process is there.
	WordPrepared = "prepared"
	// WordReady: the new process serves. Its version follows.
	WordReady = "ready"
	// wordMain: the new process is the service now.
	wordMain = "main"
)

// Start is what this process was started with.
type Start struct {
	// Sockets are listening sockets by name: FileDescriptorName= of a socket unit,
	// or what the process before this one called them.
	Sockets map[string]*os.File
	// Predecessor is the process that is to be replaced by this one; nil: none.
	Predecessor *Predecessor
}

// Inherit takes what this process was started with out of its environment, so that
// nobody else does. It can be called once.
func Inherit() (Start, error) {
	s := Start{Sockets: map[string]*os.File{}}
	names, handed := os.LookupEnv(successorEnv)
	if !handed {
		for _, f := range activation.Files(true) {
			s.Sockets[f.Name()] = f
		}
		return s, nil
	}
	if err := os.Unsetenv(successorEnv); err != nil {
		return s, fmt.Errorf("taking over: %w", err)
	}
	control, err := inheritFile(controlFD, "predecessor")
	if err != nil {
		return s, err
	}
	s.Predecessor = newPredecessor(control)
	if names == "" {
		return s, nil
	}
	for i, name := range strings.Split(names, nameSeparator) {
		if s.Sockets[name], err = inheritFile(firstSocketFD+i, name); err != nil {
			return s, err
		}
	}
	return s, nil
}

func inheritFile(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("taking over descriptor %d (%s): %w", fd, name, err)
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// Predecessor is the process this one replaces. The methods of nil do nothing:
// there is none, and it is gone.
type Predecessor struct {
	control *os.File
	// main is closed when this process is the service, gone when the other ended.
	main, gone chan struct{}
}

func newPredecessor(control *os.File) *Predecessor {
	p := &Predecessor{control: control, main: make(chan struct{}), gone: make(chan struct{})}
	go p.listen()
	return p
}

// listen ends with the predecessor, which the kernel tells however that ended.
func (p *Predecessor) listen() {
	defer close(p.gone)
	isMain := sync.OnceFunc(func() { close(p.main) })
	defer isMain()
	in := bufio.NewScanner(p.control)
	for in.Scan() {
		if in.Text() == wordMain {
			isMain()
		}
	}
}

// Say tells the predecessor something, in one line. One that has ended does not
// want to know.
func (p *Predecessor) Say(words ...string) error {
	select {
	case <-p.Gone():
		return nil
	default:
	}
	if _, err := fmt.Fprintln(p.control, strings.Join(words, " ")); err != nil {
		return fmt.Errorf("telling the process before this one: %w", err)
	}
	return nil
}

// closed is for those without a predecessor.
func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Main is closed when this process is the service.
func (p *Predecessor) Main() <-chan struct{} {
	if p == nil {
		return closed()
	}
	return p.main
}

// Gone is closed when the predecessor has ended.
func (p *Predecessor) Gone() <-chan struct{} {
	if p == nil {
		return closed()
	}
	return p.gone
}
