package unixsock

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// handed returns a copy of a listening socket, as another process would get it.
func handed(t *testing.T, s *Socket) *os.File {
	t.Helper()
	f, err := s.File()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// accepts fails unless l accepts a connection to path.
func accepts(t *testing.T, path string, l net.Listener) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Close()
}

func TestInheritedSocketGoesOn(t *testing.T) {
	path := filepath.Join(shortDir(t), "s.sock")
	old := mustListen(t, path, Owner{})
	next, err := Inherit(handed(t, old), true, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if next.Path() != path || !next.Ours() {
		t.Errorf("path %s, ours %t", next.Path(), next.Ours())
	}
	accepts(t, path, old)
	// Whoever gives way neither unlinks nor misses the file.
	old.Disown()
	_ = old.Close()
	old.Remove()
	accepts(t, path, next)
	next.Remove()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if old.Gone() {
		t.Error("a socket that was given away is missed")
	}
	_ = next.Close()
}

func TestServiceManagersSocketStays(t *testing.T) {
	path := filepath.Join(shortDir(t), "s.sock")
	manager := mustListen(t, path, Owner{})
	s, err := Inherit(handed(t, manager), false, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	before := stat(t, path)
	s.Adopt(path)
	s.Remove()
	if after := stat(t, path); !os.SameFile(before, after) {
		t.Error("another file")
	}
	if s.Gone() {
		t.Error("gone")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !s.Gone() {
		t.Error("its absence is not seen")
	}
}

func TestInheritRefusesWhatIsNoListener(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if _, err := Inherit(r, true, quiet()); !errors.Is(err, ErrNotListening) {
		t.Errorf("a pipe: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inherit(f, true, quiet()); !errors.Is(err, ErrNotListening) {
		t.Errorf("a TCP socket: %v", err)
	}
}

func TestKeepMakesTheSocketAnew(t *testing.T) {
	path := filepath.Join(shortDir(t), "s.sock")
	s := mustListen(t, path, Owner{})
	ctx, cancel := context.WithCancel(t.Context())
	made := make(chan *Socket)
	done := make(chan struct{})
	go func() {
		defer close(done)
		Keep(ctx, s, Owner{}, "a socket", quiet(), func(again *Socket) { made <- again })
	}()
	for range 2 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		select {
		case again := <-made:
			accepts(t, path, again)
			t.Cleanup(func() { _ = again.Close() })
		case <-time.After(time.Minute):
			t.Fatal("not made anew")
		}
	}
	// Somebody else's file is left alone.
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-made:
		t.Error("took somebody else's place")
	case <-time.After(2 * look):
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
	cancel()
	<-done
}
