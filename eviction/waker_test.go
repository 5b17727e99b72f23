package eviction

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func openWaker(t testing.TB) *waker {
	t.Helper()
	w, err := newWaker()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// signal is an eventfd that stands for a kernel's event.
func signal(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // closed already by some tests
	return fd
}

func raise(t testing.TB, fd int) {
	t.Helper()
	one := [8]byte{1}
	if _, err := unix.Write(fd, one[:]); err != nil {
		t.Error(err)
	}
}

// long is a wait that no test sits through: who comes back from it was woken.
const long = time.Hour

// returns waits in a goroutine and fails when the wait does not end.
func returns(t *testing.T, w *waker, what string) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.wait(long)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		w.wake()
		<-done
		t.Fatalf("still waiting: %s", what)
	}
}

func TestWaitTakesItsTime(t *testing.T) {
	w := openWaker(t)
	for _, d := range []time.Duration{periodAlarm, periodDwell, 30 * time.Millisecond} {
		began := time.Now()
		w.wait(d)
		if got := time.Since(began); got < d {
			t.Errorf("wait(%v) took %v", d, got)
		}
	}
}

func TestWakeEndsAWait(t *testing.T) {
	w := openWaker(t)
	w.wake() // before the wait: it must not be lost
	returns(t, w, "woken before")
	go w.wake()
	returns(t, w, "woken")
	began := time.Now()
	w.wait(20 * time.Millisecond)
	if time.Since(began) < 20*time.Millisecond {
		t.Error("one wake ended two waits")
	}
}

// Every event ends a wait, although nobody reads from the descriptor.
func TestEventsEndWaits(t *testing.T) {
	w := openWaker(t)
	usage, pods := signal(t), signal(t)
	for s, fd := range map[wakeSource]int{wakeUsage: usage, wakePods: pods} {
		if err := w.add(s, fd, unix.EPOLLIN); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		raise(t, usage)
		returns(t, w, "usage")
	}
	raise(t, pods)
	returns(t, w, "pods")
	if u, p := w.woken[wakeUsage].Load(), w.woken[wakePods].Load(); u != 3 || p != 1 {
		t.Errorf("usage woke %d times, pods %d, want 3 and 1", u, p)
	}
	began := time.Now()
	w.wait(20 * time.Millisecond)
	if time.Since(began) < 20*time.Millisecond {
		t.Error("an event that was noticed ended another wait")
	}
}

func TestRemovedSourcesAreSilent(t *testing.T) {
	w := openWaker(t)
	removed, closed := signal(t), signal(t)
	for s, fd := range map[wakeSource]int{wakeUsage: removed, wakePods: closed} {
		if err := w.add(s, fd, unix.EPOLLIN); err != nil {
			t.Fatal(err)
		}
		raise(t, fd)
	}
	w.remove(removed)
	if err := unix.Close(closed); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.wait(20 * time.Millisecond)
	if time.Since(began) < 20*time.Millisecond {
		t.Error("a removed source ended a wait")
	}
}

// A source that floods must not keep the real-time thread busy.
func TestFloodIsBounded(t *testing.T) {
	w := openWaker(t)
	fd := signal(t)
	if err := w.add(wakePods, fd, unix.EPOLLIN); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				raise(t, fd)
			}
		}
	}()
	const waits = 50
	began := time.Now()
	for range waits {
		w.wait(long)
	}
	if took := time.Since(began); took < waits*leastWait {
		t.Errorf("%d waits took %v, want %v at least", waits, took, waits*leastWait)
	}
	// Its own wake comes through all the same.
	w.wake()
	began = time.Now()
	w.pause(long)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("wake took %v", took)
	}
	close(stop)
	<-stopped
}

func TestWaitDoesNotAllocate(t *testing.T) {
	w := openWaker(t)
	fd := signal(t)
	if err := w.add(wakeUsage, fd, unix.EPOLLIN); err != nil {
		t.Fatal(err)
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	var failed error
	n := testing.AllocsPerRun(20, func() {
		if _, err := unix.Write(fd, one); err != nil {
			failed = err
		}
		w.wait(long)
	})
	if n != 0 || failed != nil {
		t.Errorf("%v allocations per wait, %v", n, failed)
	}
}

// An error that the kernel reports on a source is kept for the slow half.
func TestErrorsOfASourceAreNoted(t *testing.T) {
	w := openWaker(t)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(pipe[1]) }()
	// The writing end of a pipe that nobody reads has an error.
	if err := w.add(wakePressure, pipe[1], unix.EPOLLPRI); err != nil {
		t.Fatal(err)
	}
	if w.failed[wakePressure].Load() {
		t.Error("failed before it did")
	}
	if err := unix.Close(pipe[0]); err != nil {
		t.Fatal(err)
	}
	returns(t, w, "error")
	if !w.failed[wakePressure].Load() {
		t.Error("the error was not noted")
	}
	if err := w.add(wakePressure, signal(t), unix.EPOLLIN); err != nil {
		t.Fatal(err)
	}
	if w.failed[wakePressure].Load() {
		t.Error("the error of the old descriptor stays with the new one")
	}
}

func TestWakerRefusesWhatCannotBePolled(t *testing.T) {
	w := openWaker(t)
	fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := w.add(wakePods, fd, unix.EPOLLPRI); err == nil {
		t.Error("a plain file can be polled")
	}
}
