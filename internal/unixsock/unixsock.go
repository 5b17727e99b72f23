// Package unixsock makes listening unix sockets with the rules of design §5: a
// live socket is never taken over, a stale one is replaced, and only our own
// file is unlinked.
package unixsock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/cri"
)

const (
	socketMode = 0o660
	dirMode    = 0o711
	// lockPatience is how long another start on the same directory may take.
	lockPatience = 5 * time.Second
	dialTimeout  = time.Second
)

// Owner is who a socket belongs to; the zero value stands for unknown.
type Owner struct {
	uid, gid int
	known    bool
}

// OwnerOf reads the owner of the socket at path.
func OwnerOf(path string) Owner {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return Owner{}
	}
	return Owner{uid: int(st.Uid), gid: int(st.Gid), known: true}
}

// Socket is a listening unix socket that knows which file is its own.
type Socket struct {
	net.Listener
	path string
	log  logrus.FieldLogger

	mu       sync.Mutex
	dev, ino uint64
	owner    Owner
	removed  bool
	// foreign: the file is somebody else's, who also decides on its owner.
	foreign bool
}

// Listen makes a unix socket at path with mode 0660 and the given owner. Both
// are set between bind and listen: until listen nobody can connect, so that the
// socket is never reachable with other permissions. A socket at path that
// somebody serves is an error, a stale one is replaced, anything else is left
// alone.
func Listen(path string, own Owner, log logrus.FieldLogger) (*Socket, error) {
	return listen(path, own, log, func() {})
}

// listen is Listen with a look, for tests, at the socket as it is just before
// anybody can connect.
func listen(path string, own Owner, log logrus.FieldLogger, look func()) (*Socket, error) {
	if _, err := cri.ParseEndpoint("socket", path); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := makeDirs(dir); err != nil {
		return nil, err
	}
	// Two starts at once would each take the other's socket, bound but not yet
	// listening, for a stale one.
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := clearStale(path); err != nil {
		return nil, err
	}

	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer func() { _ = file.Close() }()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, fmt.Errorf("bind %s: %w", path, err)
	}
	s := &Socket{path: path, log: log}
	ok := false
	defer func() {
		if !ok {
			s.Remove()
		}
	}()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	s.dev, s.ino = uint64(st.Dev), st.Ino
	s.chown(own)
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, fmt.Errorf("mode of %s: %w", path, err)
	}
	look()
	if err := unix.Listen(fd, unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// FileListener has its own copy of the descriptor and never unlinks.
	if s.Listener, err = net.FileListener(file); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	ok = true
	return s, nil
}

// chown gives the socket file to own as far as we may; the group alone is
// often what matters and needs no privilege if we are in it.
func (s *Socket) chown(own Owner) {
	if !own.known {
		return
	}
	s.owner = own
	var st unix.Stat_t
	if unix.Lstat(s.path, &st) == nil && int(st.Uid) == own.uid && int(st.Gid) == own.gid {
		return // where chown is not permitted at all, as in the proxy's unit
	}
	err := os.Lchown(s.path, own.uid, own.gid)
	if errors.Is(err, os.ErrPermission) {
		err = os.Lchown(s.path, -1, own.gid)
		if err == nil && own.uid == os.Geteuid() {
			return
		}
		if err == nil {
			err = fmt.Errorf("not permitted to give it to uid %d", own.uid)
		}
	}
	if err != nil {
		s.log.WithError(err).WithField("path", s.path).Warn("socket does not have the owner of the runtime's")
	}
}

// Adopt sets the owner if the runtime's socket was not there when we began.
func (s *Socket) Adopt(upstream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner.known || s.removed || s.foreign || !s.isOurs() {
		return
	}
	s.chown(OwnerOf(upstream))
}

// isOurs tells whether the file at our path is still the one we made.
func (s *Socket) isOurs() bool {
	var st unix.Stat_t
	return unix.Lstat(s.path, &st) == nil && uint64(st.Dev) == s.dev && st.Ino == s.ino
}

// Gone says whether there is no file at our path any more. Somebody else's file
// there is not gone.
func (s *Socket) Gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st unix.Stat_t
	return !s.removed && errors.Is(unix.Lstat(s.path, &st), unix.ENOENT)
}

// Disown leaves the file to another process: Remove does nothing any more, and the
// file is not missed.
func (s *Socket) Disown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
}

// Remove unlinks the socket unless somebody else's is there by now. It can be
// called more than once.
func (s *Socket) Remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed || s.foreign || !s.isOurs() {
		return
	}
	s.removed = true
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.log.WithError(err).Warn("socket not removed")
	}
}

// makeDirs creates dir and its missing parents with mode 0711, whatever the
// umask says. Existing ones stay as they are.
func makeDirs(dir string) error {
	if fi, err := os.Stat(dir); err == nil {
		if !fi.IsDir() {
			return fmt.Errorf("%s is not a directory", dir)
		}
		return nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	if err := makeDirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return fmt.Errorf("directory of the socket: %w", err)
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	return nil
}

// lockDir takes an advisory lock on a directory.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the socket: %w", err)
	}
	for end := time.Now().Add(lockPatience); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
	}
}

// clearStale makes sure that path is free.
func clearStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if fi.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket (%s); it is left alone, choose another path or remove it", path, fi.Mode())
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("%s is in use: another process serves it", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove stale socket: %w", err)
		}
		return nil
	case errors.Is(err, os.ErrNotExist):
		return nil
	}
	return fmt.Errorf("%s is a socket that may be in use: %w", path, err)
}
