package unixsock

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/cri"
)

func quiet() logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return l
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "us")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func mustListen(t *testing.T, path string, own Owner) *Socket {
	t.Helper()
	s, err := Listen(path, own, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(); s.Remove() })
	return s
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	fi, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi
}

func TestSocketHasModeWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o077, 0o777} {
		old := unix.Umask(mask)
		path := filepath.Join(shortDir(t), "a", "b", "s.sock")
		if mask == 0o777 {
			// A directory nobody may enter cannot be made by such a process.
			path = filepath.Join(shortDir(t), "s.sock")
		}
		s, err := Listen(path, Owner{}, quiet())
		unix.Umask(old)
		if err != nil {
			t.Fatalf("umask %#o: %v", mask, err)
		}
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode().Type() != os.ModeSocket || fi.Mode().Perm() != 0o660 {
			t.Errorf("umask %#o: %v %v", mask, fi.Mode(), err)
		}
		if mask != 0o777 {
			for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
				if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o711 {
					t.Errorf("umask %#o: %s: %v %v", mask, dir, fi.Mode(), err)
				}
			}
		}
		_ = s.Close()
		s.Remove()
	}
}

func TestExistingDirectoryKeepsItsMode(t *testing.T) {
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	mustListen(t, filepath.Join(dir, "s"), Owner{})
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o750 {
		t.Errorf("%v %v", fi.Mode(), err)
	}
}

func TestSocketGetsTheOwnerOfTheRuntimes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: gives files to others")
	}
	dir := shortDir(t)
	upstream := filepath.Join(dir, "up")
	l, err := net.Listen("unix", upstream)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Chown(upstream, 12, 34); err != nil {
		t.Fatal(err)
	}
	s := mustListen(t, filepath.Join(dir, "s"), OwnerOf(upstream))
	late := mustListen(t, filepath.Join(dir, "late"), OwnerOf(filepath.Join(dir, "absent")))
	late.Adopt(upstream)
	for _, s := range []*Socket{s, late} {
		path := s.Addr().String()
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Uid != 12 || st.Gid != 34 || st.Mode&0o777 != 0o660 {
			t.Errorf("%s: uid %d gid %d mode %#o, %v", path, st.Uid, st.Gid, st.Mode&0o777, err)
		}
	}
}

func TestLiveSocketIsRefused(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	mustListen(t, path, Owner{})
	first := stat(t, path)
	_, err := Listen(path, Owner{}, quiet())
	if err == nil || !strings.Contains(err.Error(), path+" is in use") {
		t.Fatalf("got %v", err)
	}
	if !os.SameFile(first, stat(t, path)) {
		t.Error("the live socket was touched")
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	mustListen(t, path, Owner{})
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

func TestWhatIsNotASocketIsLeftAlone(t *testing.T) {
	dir := shortDir(t)
	makers := map[string]func(string) error{
		"file":      func(p string) error { return os.WriteFile(p, []byte("x"), 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"link":      func(p string) error { return os.Symlink("/nowhere", p) },
		"pipe":      func(p string) error { return unix.Mkfifo(p, 0o600) },
	}
	for name, makeIt := range makers {
		path := filepath.Join(dir, name)
		if err := makeIt(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path, Owner{}, quiet()); err == nil || !strings.Contains(err.Error(), "is not a socket") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSocketOfAnotherKindIsLeftAlone(t *testing.T) {
	path := filepath.Join(shortDir(t), "dgram")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := Listen(path, Owner{}, quiet()); !errors.Is(err, syscall.EPROTOTYPE) {
		t.Errorf("got %v", err)
	}
}

func TestBadPathsAreRefused(t *testing.T) {
	long := filepath.Join("/tmp", strings.Repeat("x", 103))
	for path, want := range map[string]string{"relative/s": "absolute", long: "at most 107", "": "empty"} {
		_, err := Listen(path, Owner{}, quiet())
		var bad *cri.EndpointError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestOnlyOurOwnSocketIsRemoved(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	s := mustListen(t, path, Owner{})
	_ = s.Close()
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	successor := mustListen(t, path, Owner{})
	theirs := stat(t, path)
	s.Remove()
	if fi, err := os.Lstat(path); err != nil || !os.SameFile(theirs, fi) {
		t.Fatal("the successor's socket was removed")
	}
	successor.Remove()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("own socket left: %v", err)
	}
	successor.Remove() // again is fine
}

// Of many starts at once exactly one may win, and its socket must work.
func TestOneOfManyStartsWins(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []*Socket
	for range 8 {
		wg.Go(func() {
			s, err := Listen(path, Owner{}, quiet())
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			won = append(won, s)
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Fatalf("%d starts won", len(won))
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	_ = won[0].Close()
	won[0].Remove()
}

// bugs.md B93: mode and owner are those of the runtime's before anybody can
// connect, not a moment after.
func TestCaseB93ModeAndOwnerAreSetBeforeAnybodyCanConnect(t *testing.T) {
	dir := shortDir(t)
	upstream := mustListen(t, filepath.Join(dir, "up"), Owner{})
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if uid == 0 {
		uid, gid = 12, 34
		if err := os.Chown(upstream.Addr().String(), int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := filepath.Join(dir, "s")
	looked := false
	s, err := listen(path, OwnerOf(upstream.Addr().String()), quiet(), func() {
		looked = true
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Mode&0o777 != 0o660 || st.Uid != uid || st.Gid != gid {
			t.Errorf("just before: uid %d gid %d mode %#o, %v", st.Uid, st.Gid, st.Mode&0o777, err)
		}
		if c, err := net.Dial("unix", path); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("just before: dial gives %v", err)
			if err == nil {
				_ = c.Close()
			}
		}
	})
	if err != nil || !looked {
		t.Fatal(err, looked)
	}
	defer func() { _ = s.Close(); s.Remove() }()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// A server that is too busy to accept is alive.
func TestBusySocketIsRefused(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("unix", path)
		if err != nil {
			break // the backlog is full
		}
		defer func() { _ = c.Close() }()
	}
	if _, err := Listen(path, Owner{}, quiet()); err == nil || !strings.Contains(err.Error(), "may be in use") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// A start waits for another one in the same directory, so that it never takes a
// socket that is bound and not yet listening for a stale one.
func TestStartWaitsForAnotherInTheSameDirectory(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		s, err := Listen(path, Owner{}, quiet())
		if err == nil {
			_ = s.Close()
			s.Remove()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
