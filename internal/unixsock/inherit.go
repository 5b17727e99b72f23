package unixsock

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// ErrNotListening says that a descriptor is not a listening unix socket with a path.
var ErrNotListening = errors.New("not a listening unix socket")

// PathOf returns the path of the listening unix socket f.
func PathOf(f *os.File) (string, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return "", fmt.Errorf("inherited socket %s: %w", f.Name(), err)
	}
	var path string
	var failed error
	err = raw.Control(func(fd uintptr) { path, failed = pathOf(int(fd)) })
	if err = errors.Join(err, failed); err != nil {
		return "", fmt.Errorf("inherited socket %s: %w", f.Name(), err)
	}
	return path, nil
}

func pathOf(fd int) (string, error) {
	listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotListening, err)
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotListening, err)
	}
	u, ok := addr.(*unix.SockaddrUnix)
	if !ok || listens == 0 || len(u.Name) == 0 || u.Name[0] != '/' {
		return "", ErrNotListening
	}
	return u.Name, nil
}

// Inherit goes on with a listening socket that was opened by somebody else and
// takes f over. With ours the file is removed at the end like one we made, without
// it never: it is the service manager's.
func Inherit(f *os.File, ours bool, log logrus.FieldLogger) (*Socket, error) {
	defer func() { _ = f.Close() }() // the listener has a copy
	path, err := PathOf(f)
	if err != nil {
		return nil, err
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("inherited socket %s: %w", path, err)
	}
	s := &Socket{Listener: l, path: path, log: log, foreign: !ours}
	var st unix.Stat_t
	if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		s.dev, s.ino = uint64(st.Dev), st.Ino
	}
	return s, nil
}

// Path is where the socket's file is.
func (s *Socket) Path() string { return s.path }

// Ours says whether the file is removed at the end.
func (s *Socket) Ours() bool { return !s.foreign }

// File returns a copy of the listening descriptor for another process.
func (s *Socket) File() (*os.File, error) {
	u, ok := s.Listener.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("socket %s: %w", s.path, ErrNotListening)
	}
	f, err := u.File()
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", s.path, err)
	}
	return f, nil
}
