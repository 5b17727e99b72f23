package cgroupfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eater takes so many MiB of anonymous memory, when told, and keeps them: dd
// with a buffer that it cannot write out.
func eater(t *testing.T, mib int) string {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("read gate; exec dd if=/dev/zero bs=%dM count=1 1<>%s", mib, fifo)
}

// threads counts those of this process.
func threads(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	return len(names)
}

// The kernel tells of each crossing, up and down, although nobody reads.
func TestRealV1UsageEvent(t *testing.T) {
	r := realV1(t)
	dir := filepath.Join(r.fs.memory, r.path)
	e, err := usageEvent(dir, 32*mib)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := poll(t, e)
	if p.within(100 * time.Millisecond) {
		t.Error("an event before anything has happened")
	}
	for i := range 3 {
		c := r.start(t, r.container, eater(t, 96))
		if !p.within(patience) {
			t.Fatalf("round %d: no event on the way up", i)
		}
		if usage, err := openPod(t, r.fs, r.path).Usage(); err != nil || usage < 24*mib {
			t.Errorf("round %d: usage %d, %v at the event", i, usage, err)
		}
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-c.done
		if !p.within(patience) {
			t.Fatalf("round %d: no event on the way down", i)
		}
		for p.within(200 * time.Millisecond) {
			// several crossings may have been told one by one
		}
	}
}

// B12 b: 1,000 values, one after the other, on the real root: nothing is left
// over, in the kernel's view of this process and in ours.
func TestRealV1B12ThousandUsageEvents(t *testing.T) {
	r := realV1(t)
	one := func(at uint64) {
		e, err := r.fs.OpenUsageEvent(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	n := uint64(1000)
	if testing.Short() {
		n = 100 // each waits for a grace period of the kernel
	}
	one(1 << 50)
	fds, tasks := openDescriptors(t), threads(t)
	for i := range n {
		one(1<<50 + i<<20)
	}
	if got := openDescriptors(t); got > fds+2 {
		t.Errorf("%d descriptors, %d before", got, fds)
	}
	if got := threads(t); got > tasks+2 {
		t.Errorf("%d threads, %d before", got, tasks)
	}
}

// memory.events tells of a limit that was hit, again and again, and of its end.
func TestRealPodsEvent(t *testing.T) {
	r := realMemoryV2(t)
	// of the machine's own tree or ours
	if e, err := r.fs.OpenPodsEvent(); err != nil {
		t.Error(err)
	} else if err := e.Close(); err != nil {
		t.Error(err)
	}
	c := openPod(t, r.fs, filepath.Dir(filepath.Dir(r.path)))
	e, err := memoryEvents(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	if e.Detail() != c.Path() || e.Mask() != unix.EPOLLPRI {
		t.Errorf("detail %q, mask %#x", e.Detail(), e.Mask())
	}
	p := poll(t, e)
	if p.within(200 * time.Millisecond) {
		t.Error("an event before anything has happened")
	}
	if err := os.WriteFile(filepath.Join(r.fs.memory, r.path, "memory.max"), []byte("33554432"), 0); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		r.start(t, r.container, eater(t, 96))
		if !p.within(patience) {
			t.Fatalf("round %d: no event of the limit of a pod below", i)
		}
		for p.within(time.Second) {
			// until the kernel has killed it
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
	}
	waitEmpty(t, openPod(t, r.fs, r.path))
	eventually(t, "the pods' cgroup can be removed", func() bool {
		for _, d := range []string{r.container, r.path, filepath.Dir(r.path), c.path} {
			_ = os.Remove(r.fs.memory + d)
		}
		return !isDir(c.full)
	})
	if err := e.Check(); !errors.Is(err, ErrGone) {
		t.Errorf("after the removal: %v, want ErrGone", err)
	}
}

// memory.reclaim takes page cache back, and says when there is none.
func TestRealReclaim(t *testing.T) {
	r := realMemoryV2(t)
	p := openPod(t, r.fs, r.path)
	if err := p.Reclaim(mib); errors.Is(err, ErrAbsent) {
		t.Skipf("needs kernel 5.19: %v", err)
	}
	file := filepath.Join(t.TempDir(), "cache")
	c := r.start(t, r.container, "read gate; dd if=/dev/zero of="+file+" bs=1M count=64 conv=fsync 2>/dev/null; exec sleep 1000")
	eventually(t, "page cache is charged to the pod", func() bool {
		cache, err := p.InactiveFile()
		if err != nil {
			t.Fatal(err)
		}
		return cache >= 60*mib
	})
	before, err := p.Usage()
	if err != nil {
		t.Fatal(err)
	}
	// Pages may be dirty or held for a moment.
	eventually(t, "32 MiB are taken", func() bool { return p.Reclaim(32*mib) == nil })
	after, err := p.Usage()
	if err != nil || after > before-24*mib {
		t.Errorf("usage %d MiB, %v, %d MiB before", after/mib, err, before/mib)
	}
	if err := p.Reclaim(gib); !errors.Is(err, ErrReclaimShort) {
		t.Errorf("1 GiB: %v, want ErrReclaimShort", err)
	}
	if !alive(c.pid()) {
		t.Error("reclaim killed the process")
	}
}

// The ladder ends at the shortest window that the privilege allows.
func TestRealPressureLadder(t *testing.T) {
	f, err := Open(Roots{Proc: "/proc", Cgroup: "/sys/fs/cgroup"})
	if err != nil {
		t.Skipf("needs a machine: %v", err)
	}
	if _, err := os.Stat("/proc/pressure/memory"); err != nil {
		t.Skipf("needs PSI: %v", err)
	}
	e, err := f.OpenPressureEvent()
	if err != nil {
		t.Skipf("no trigger is given here: %v", err)
	}
	t.Logf("trigger: %s", e.Detail())
	if e.Mask() != unix.EPOLLPRI {
		t.Errorf("mask %#x", e.Mask())
	}
	granted := e.Detail()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, window := range pressureWindows() {
		e, err := pressureEvent("/proc/pressure/memory", window)
		if err != nil {
			if !errors.Is(err, ErrAbsent) {
				t.Errorf("%v: %v, want ErrAbsent", window, err)
			}
			continue
		}
		if e.Detail() != granted {
			t.Errorf("the ladder took %q although %q is given", granted, e.Detail())
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("a trigger was given that nothing asks for")
}

// A task that stalls on memory brings an event, and the next stall another.
func TestRealPressureEvent(t *testing.T) {
	r := realMemoryV2(t)
	e, err := r.fs.OpenPressureEvent()
	if err != nil {
		t.Skipf("no trigger is given here: %v", err)
	}
	defer func() { _ = e.Close() }()
	t.Logf("trigger: %s", e.Detail())
	p := poll(t, e)
	// Far above memory.high each page is throttled: a stall that lasts.
	high := filepath.Join(r.fs.memory, r.path, "memory.high")
	if err := os.WriteFile(high, []byte("8388608"), 0); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		for p.within(time.Second) {
			// what is left of the last one
		}
		c := r.start(t, r.container, eater(t, 64))
		if !p.within(3 * patience) {
			t.Fatalf("round %d: no event while a task stalls", i)
		}
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-c.done
	}
}
