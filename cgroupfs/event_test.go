package cgroupfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// No tree offers any event, and none is changed by asking.
func TestEventsOfATreeAreAbsent(t *testing.T) {
	for _, tree := range trees() {
		_, r := copyTree(t, tree.name)
		writeFile(t, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", r.Proc, "pressure/memory")
		writeFile(t, "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n", r.Cgroup, filepath.Dir(filepath.Dir(tree.burstable)), "memory.events")
		f, err := Open(r)
		if err != nil {
			t.Fatal(err)
		}
		before := openDescriptors(t)
		for name, open := range map[string]func() (*Event, error){
			"usage":    func() (*Event, error) { return f.OpenUsageEvent(gib) },
			"pressure": f.OpenPressureEvent,
			"pods":     f.OpenPodsEvent,
		} {
			if e, err := open(); !errors.Is(err, ErrAbsent) || e != nil {
				t.Errorf("%s: %s: %v, %v, want ErrAbsent", tree.name, name, e, err)
			}
		}
		if after := openDescriptors(t); after != before {
			t.Errorf("%s: %d descriptors stay open", tree.name, after-before)
		}
		b, err := os.ReadFile(filepath.Join(r.Proc, "pressure/memory"))
		if err != nil || !strings.HasPrefix(string(b), "some avg10") {
			t.Errorf("%s: %q, %v: a file of the tree was written to", tree.name, b, err)
		}
	}
}

func TestUsageEventText(t *testing.T) {
	_, r := copyTree(t, "v1")
	writeFile(t, "", r.Cgroup, "memory", eventControl)
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	before := openDescriptors(t)
	e, err := f.OpenUsageEvent(5 * gib)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(r.Cgroup, "memory", eventControl))
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(b))
	if len(words) != 3 || words[2] != "5368709120" || e.Mask() != unix.EPOLLIN || e.Detail() != "at 5368709120 bytes" {
		t.Errorf("wrote %q, mask %#x, detail %q", b, e.Mask(), e.Detail())
	}
	if after := openDescriptors(t); after != before+1 {
		t.Errorf("%d descriptors more, want the eventfd alone", after-before)
	}
	if err := e.Check(); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors more after Close", after-before)
	}
}

// A usage event that cannot be had leaves nothing open.
func TestUsageEventErrors(t *testing.T) {
	_, r := copyTree(t, "v1")
	dir := filepath.Join(r.Cgroup, "memory")
	before := openDescriptors(t)
	if _, err := usageEvent(filepath.Join(dir, "nobody"), 1); !errors.Is(err, ErrAbsent) {
		t.Errorf("no cgroup: %v, want ErrAbsent", err)
	}
	writeFile(t, "", dir, "empty", eventControl)
	if _, err := usageEvent(filepath.Join(dir, "empty"), 1); !errors.Is(err, ErrAbsent) {
		t.Errorf("no usage: %v, want ErrAbsent", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "odd", eventControl), 0o700); err != nil {
		t.Fatal(err)
	}
	var b *BrokenError
	if _, err := usageEvent(filepath.Join(dir, "odd"), 1); !errors.As(err, &b) || errors.Is(err, ErrAbsent) {
		t.Errorf("a directory: %v, want a BrokenError", err)
	}
	// A kernel that refuses the wish itself.
	writeFile(t, "0\n", dir, "full/memory.usage_in_bytes")
	if err := os.Symlink("/dev/full", filepath.Join(dir, "full", eventControl)); err != nil {
		t.Fatal(err)
	}
	if _, err := usageEvent(filepath.Join(dir, "full"), 1); !errors.As(err, &b) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("refused: %v, want a BrokenError with the reason", err)
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors stay open", after-before)
	}
}

// The kernel writes over the last byte of what it is given: without the line end
// a window of 500000 would become one of 50000.
func TestPressureText(t *testing.T) {
	for window, want := range map[time.Duration]string{
		100 * time.Millisecond: "some 10000 100000\n",
		500 * time.Millisecond: "some 50000 500000\n",
		2 * time.Second:        "some 200000 2000000\n",
	} {
		if got := string(pressureText(window)); got != want {
			t.Errorf("%v: %q, want %q", window, got, want)
		}
	}
}

// The shortest first, and at the end the one that everybody gets.
func TestPressureWindows(t *testing.T) {
	want := []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}
	if got := pressureWindows(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNotOffered(t *testing.T) {
	for _, err := range []error{fs.ErrNotExist, unix.ENOENT, unix.EACCES, unix.EPERM, unix.EROFS, unix.EOPNOTSUPP} {
		got := notOffered("/p", err)
		if !errors.Is(got, ErrAbsent) || !errors.Is(got, err) || !strings.HasPrefix(got.Error(), "/p: ") {
			t.Errorf("%v: %v, want ErrAbsent with the reason", err, got)
		}
	}
	var b *BrokenError
	if got := notOffered("/p", unix.EIO); errors.Is(got, ErrAbsent) || !errors.As(got, &b) || b.Path != "/p" {
		t.Errorf("%v, want a BrokenError", got)
	}
}

// polled waits for an event, as the waker does: edge-triggered, and nobody reads
// from the descriptor.
type polled struct {
	t     *testing.T
	epoll int
}

func poll(t *testing.T, e *Event) *polled {
	t.Helper()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	ev := unix.EpollEvent{Events: e.Mask() | unix.EPOLLET}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, e.Fd(), &ev); err != nil {
		t.Fatal(err)
	}
	return &polled{t, fd}
}

// within tells whether an event came.
func (p *polled) within(d time.Duration) bool {
	p.t.Helper()
	var ev [1]unix.EpollEvent
	for end := time.Now().Add(d); ; {
		n, err := unix.EpollWait(p.epoll, ev[:], int(max(0, time.Until(end)).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			p.t.Fatal(err)
		}
		return n > 0
	}
}
