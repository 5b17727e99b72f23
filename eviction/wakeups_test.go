package eviction

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// fakeEvents is KernelEvents made of eventfds.
type fakeEvents struct {
	t                        *testing.T
	inactive                 uint64
	usage, pressure, pods    error // why not; nil: granted
	inactiveErr              error
	opened, closed, maxAlive int
	armed                    []uint64
	last                     map[wakeSource]*fakeEvent
	plain                    bool // files that cannot be polled
}

type fakeEvent struct {
	of     *fakeEvents
	fd     int
	detail string
	check  error
}

func (e *fakeEvent) Fd() int        { return e.fd }
func (e *fakeEvent) Mask() uint32   { return unix.EPOLLIN }
func (e *fakeEvent) Detail() string { return e.detail }
func (e *fakeEvent) Check() error   { return e.check }
func (e *fakeEvent) Close() error   { e.of.closed++; return unix.Close(e.fd) }

func newEvents(t *testing.T) *fakeEvents {
	return &fakeEvents{t: t, last: map[wakeSource]*fakeEvent{}}
}

func (f *fakeEvents) grant(s wakeSource, detail string, err error) (KernelEvent, error) {
	if err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if f.plain {
		_ = unix.Close(fd)
		fd, err = unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.opened++
	f.maxAlive = max(f.maxAlive, f.opened-f.closed)
	f.last[s] = &fakeEvent{of: f, fd: fd, detail: detail}
	return f.last[s], nil
}

func (f *fakeEvents) Usage(at uint64) (KernelEvent, error) {
	if f.usage == nil {
		f.armed = append(f.armed, at)
	}
	return f.grant(wakeUsage, fmt.Sprintf("at %d", at), f.usage)
}
func (f *fakeEvents) InactiveFile() (uint64, error) { return f.inactive, f.inactiveErr }
func (f *fakeEvents) Pressure() (KernelEvent, error) {
	return f.grant(wakePressure, "some", f.pressure)
}
func (f *fakeEvents) Pods() (KernelEvent, error) { return f.grant(wakePods, "/kubepods", f.pods) }

// wakeRig keeps wake-ups by hand, a second for each call of keep.
type wakeRig struct {
	*wakeups
	*fakeEvents
	lines *logLines
	now   time.Time
	in    wakeInput
}

func newWakeRig(t *testing.T) *wakeRig {
	t.Helper()
	log, lines := quietLog()
	f := newEvents(t)
	r := &wakeRig{
		wakeups: newWakeups(f, log), fakeEvents: f, lines: lines, now: t0,
		in: wakeInput{capacity: 10 * gi, threshold: 500 * mi},
	}
	r.waker = openWaker(t)
	t.Cleanup(func() {
		r.closeAll()
		if f.opened != f.closed {
			t.Errorf("%d events opened, %d closed", f.opened, f.closed)
		}
	})
	return r
}

func (r *wakeRig) after(d time.Duration) {
	r.now = r.now.Add(d)
	r.keep(r.now, r.in)
}

// inUse names the sources in use.
func (r *wakeRig) inUse() string {
	var names []string
	for _, s := range r.states() {
		if s.InUse {
			names = append(names, s.Source)
		}
	}
	return strings.Join(names, " ")
}

func TestArmAt(t *testing.T) {
	for _, tt := range []struct {
		capacity, threshold, inactive, at uint64
		ok                                bool
	}{
		{10 * gi, 500 * mi, 0, 10*gi - 500*mi, true},
		{10 * gi, 500 * mi, 100 * mi, 10*gi - 400*mi, true},
		{10 * gi, 500 * mi, 500*mi - 1, 10*gi - 1, true},
		{10 * gi, 500 * mi, 500 * mi, 10 * gi, false}, // nobody can pass the capacity
		{10 * gi, 20 * gi, 5 * gi, 5 * gi, true},
	} {
		if at, ok := armAt(tt.capacity, tt.threshold, tt.inactive); at != tt.at || ok != tt.ok {
			t.Errorf("armAt(%d, %d, %d) = %d %v, want %d %v", tt.capacity, tt.threshold, tt.inactive, at, ok, tt.at, tt.ok)
		}
	}
}

// B12 a: more inactive page cache than the threshold: 13.5 GiB cannot be passed
// on a node of 10 GiB.
func TestCaseB12NotArmedAboveCapacity(t *testing.T) {
	r := newWakeRig(t)
	r.inactive = 4 * gi
	r.after(0)
	if len(r.armed) != 0 {
		t.Errorf("armed at %v", r.armed)
	}
	if s := r.states()[wakeUsage]; s.InUse || !strings.Contains(s.Detail, "page cache") {
		t.Errorf("%+v", s)
	}
	// The cache was reclaimed: now it can.
	r.inactive = 50 * mi
	r.after(time.Second)
	if len(r.armed) != 1 || r.armed[0] != 10*gi-450*mi {
		t.Errorf("armed at %v", r.armed)
	}
	r.inactive = 4 * gi
	r.after(time.Second)
	if s := r.states()[wakeUsage]; s.InUse {
		t.Errorf("%+v: still armed at a value nobody can reach", s)
	}
}

// The value follows inactive_file by steps of an eighth of the threshold.
func TestUsageEventFollowsInactiveFile(t *testing.T) {
	r := newWakeRig(t)
	base := uint64(10*gi - 500*mi)
	for _, tt := range []struct {
		inactive uint64
		want     uint64 // 0: it stays
	}{
		{100 * mi, base + 100*mi},
		{100*mi + 62*mi, 0},
		{100*mi - 62*mi, 0},
		{100*mi + 63*mi, base + 163*mi},
		{101 * mi, 0}, // 62 MiB from the last
		{100 * mi, base + 100*mi},
		{300 * mi, base + 300*mi},
	} {
		before := len(r.armed)
		r.inactive = tt.inactive
		r.after(time.Second)
		if tt.want == 0 && len(r.armed) != before {
			t.Errorf("inactive_file %d MiB: armed at %d", tt.inactive/mi, r.armed[before])
		} else if tt.want != 0 && (len(r.armed) != before+1 || r.armed[before] != tt.want) {
			t.Errorf("inactive_file %d MiB: armed %v, want %d", tt.inactive/mi, r.armed[before:], tt.want)
		}
	}
	// A new threshold moves it too, no threshold ends it.
	r.in.threshold = gi
	r.after(time.Second)
	if got := r.armed[len(r.armed)-1]; got != 10*gi-gi+300*mi {
		t.Errorf("armed at %d after a reload", got)
	}
	r.in.threshold = 0
	r.after(time.Second)
	if s := r.states()[wakeUsage]; s.InUse || s.Detail != "memory.available is off" {
		t.Errorf("without a threshold: %+v", s)
	}
}

// At most once a second, the old one closed before the new one is made, however
// wildly the cache moves.
func TestUsageEventMovesOnceASecond(t *testing.T) {
	r := newWakeRig(t)
	r.pressure, r.pods = cgroupfs.ErrAbsent, cgroupfs.ErrAbsent
	for i := range 1000 {
		r.inactive = uint64(i/7%2) * 300 * mi
		r.after(100*time.Millisecond + time.Nanosecond)
	}
	if n := len(r.armed); n < 50 || n > 101 {
		t.Errorf("armed %d times in 100 s", n)
	}
	if r.maxAlive != 1 {
		t.Errorf("%d events alive at a time", r.maxAlive)
	}
}

// During an alarm nothing is read or moved.
func TestWakeupsRestDuringAnAlarm(t *testing.T) {
	r := newWakeRig(t)
	r.in.capacity = 0
	r.after(0)
	if r.opened != 0 {
		t.Error("armed before the first sample")
	}
	r.in = wakeInput{capacity: 10 * gi, threshold: 500 * mi, met: true}
	r.after(time.Second)
	if r.opened != 0 {
		t.Error("opened during an alarm")
	}
	r.in.met = false
	r.after(time.Second)
	if got := r.inUse(); got != "usage pressure podsEvents" {
		t.Errorf("in use: %s", got)
	}
}

// B11: v2 has no event_control, and this one no PSI and no pods yet: one info
// line at the start, no warning, also after an hour.
func TestCaseB11OneLine(t *testing.T) {
	r := newWakeRig(t)
	absent := fmt.Errorf("/sys/fs/cgroup: %w", cgroupfs.ErrAbsent)
	r.inactiveErr, r.pressure, r.pods = absent, absent, absent
	for range 3600 {
		r.after(time.Second)
	}
	if got := r.lines.all(); len(got) != 1 || len(r.lines.at(logrus.InfoLevel)) != 1 || !strings.HasPrefix(got[0], "no kernel wake-ups") {
		t.Errorf("lines %q, want one at level info", got)
	}
	for _, s := range r.states() {
		if s.InUse || s.Detail != absent.Error() {
			t.Errorf("%+v", s)
		}
	}
	// The pods' cgroup comes later: without a word it is used.
	r.pods = nil
	r.after(podsAgain)
	if got := r.inUse(); got != "podsEvents" {
		t.Errorf("in use: %q", got)
	}
	if got := r.lines.all(); len(got) != 1 {
		t.Errorf("lines %q", got)
	}
}

// A source that breaks is dropped with one line; the others stay.
func TestBrokenSourceIsDropped(t *testing.T) {
	r := newWakeRig(t)
	r.after(0)
	r.last[wakePods].check = &cgroupfs.BrokenError{Path: "/p", Err: errors.New("input/output error")}
	r.pods = r.last[wakePods].check
	for range 600 {
		r.after(time.Second)
	}
	if got := r.inUse(); got != "usage pressure" {
		t.Errorf("in use: %s", got)
	}
	if got := r.lines.at(logrus.WarnLevel); len(got) != 1 {
		t.Errorf("warnings %q, want one", got)
	}
	r.pods = nil
	r.after(sourceAgain)
	if got := r.inUse(); got != "usage pressure podsEvents" {
		t.Errorf("in use after it works again: %s", got)
	}
}

// A trigger that the kernel ends is dropped, and asked for anew later.
func TestEndedPressureIsDropped(t *testing.T) {
	r := newWakeRig(t)
	r.after(0)
	r.waker.failed[wakePressure].Store(true)
	r.after(time.Second)
	if got := r.inUse(); got != "usage podsEvents" {
		t.Errorf("in use: %s", got)
	}
	r.after(sourceAgain)
	if got := r.inUse(); got != "usage pressure podsEvents" {
		t.Errorf("in use a minute later: %s", got)
	}
	if got := r.lines.at(logrus.WarnLevel); len(got) != 1 {
		t.Errorf("warnings %q, want one", got)
	}
}

// kubelet removes the pods' cgroup and makes it anew when its driver changes.
func TestPodsEventsFollowTheCgroup(t *testing.T) {
	r := newWakeRig(t)
	r.after(0)
	old := r.last[wakePods]
	old.check = fmt.Errorf("/kubepods: %w", cgroupfs.ErrGone)
	r.after(time.Second)
	if r.last[wakePods] == old || r.inUse() != "usage pressure podsEvents" {
		t.Errorf("in use: %s, opened anew %v", r.inUse(), r.last[wakePods] != old)
	}
	raise(t, r.last[wakePods].fd)
	returns(t, r.waker, "an event of the new cgroup")
	if got := r.lines.at(logrus.WarnLevel); len(got) != 0 {
		t.Errorf("warnings %q", got)
	}
}

// What cannot be polled is dropped with a line, and closed.
func TestSourceThatCannotBePolled(t *testing.T) {
	r := newWakeRig(t)
	r.plain = true
	r.after(0)
	if got := r.inUse(); got != "" {
		t.Errorf("in use: %s", got)
	}
	if r.opened != 3 || r.closed != 3 {
		t.Errorf("opened %d, closed %d", r.opened, r.closed)
	}
	if got := r.lines.at(logrus.WarnLevel); len(got) != 3 {
		t.Errorf("warnings %q", got)
	}
}
