package eviction

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

// bugs.md B35: 10, 20, 40 s … 5 min.
func TestCaseB35BackOff(t *testing.T) {
	for repeat, want := range map[uint32]time.Duration{
		0: 10 * time.Second, 1: 20 * time.Second, 2: 40 * time.Second, 3: 80 * time.Second, 4: 160 * time.Second,
		5: 5 * time.Minute, 6: 5 * time.Minute, 1 << 31: 5 * time.Minute,
	} {
		if got := BackOff(repeat); got != want {
			t.Errorf("repeat %d: %v, want %v", repeat, got, want)
		}
	}
}

// killed is the record of a pod evicted at t0+at.
func killed(id uint64, at time.Duration, usage int64) holds.Record {
	uid := fmt.Sprintf("u%d", id)
	return holds.Record{
		ID: id, State: holds.Killed, UID: uid, Namespace: "default", Name: uid, Usage: usage, Signal: string(MemoryAvailable),
		Decided: t0.Add(at), KilledAt: t0.Add(at + 50*time.Millisecond),
	}
}

// memoryClear is memory clear since at, and the others for an hour.
func memoryClear(at time.Time) (out [conditionKinds]time.Time) {
	out[memoryPressure], out[diskPressure], out[pidPressure] = at, t0.Add(-time.Hour), t0.Add(-time.Hour)
	return out
}

// A hold waits for the condition it was made for, and for room by its own signal:
// what a pod had is in that one's unit.
func TestReleasesBySignal(t *testing.T) {
	disk := killed(1, 0, 20*gi)
	disk.Signal = string(NodeFsAvailable)
	base := ReleaseInput{
		Now: t0.Add(50 * time.Second), Records: []holds.Record{disk}, Transition: 30 * time.Second, HoldMaximum: time.Hour,
		ClearSince: memoryClear(time.Time{}), // there is memory pressure
		Rooms: map[Signal]Room{
			NodeFsAvailable: {Available: 50 * gi, Need: 12 * gi}, PIDAvailable: {Available: 1000, Need: 10}, MemoryAvailable: {Available: gi, Need: gi},
		},
	}
	for _, tt := range []struct {
		name   string
		change func(in *ReleaseInput)
		want   int
	}{
		{"disk is clear", func(*ReleaseInput) {}, 1},
		{"disk is not", func(in *ReleaseInput) { in.ClearSince[diskPressure] = time.Time{} }, 0},
		{"its signal is not known", func(in *ReleaseInput) { in.Unknown = map[Signal]bool{NodeFsAvailable: true} }, 0},
		{"another is not", func(in *ReleaseInput) { in.Unknown = map[Signal]bool{ImageFsAvailable: true} }, 1},
		{"no room on the disk", func(in *ReleaseInput) {
			in.Rooms = map[Signal]Room{NodeFsAvailable: {Available: 32 * gi, Need: 12 * gi}}
		}, 0},
		{"a pod evicted for memory waits for memory", func(in *ReleaseInput) {
			r := killed(1, 0, mi)
			in.Records = []holds.Record{r}
		}, 0},
	} {
		in := base
		tt.change(&in)
		if got := len(Releases(in)); got != tt.want {
			t.Errorf("%s: %d releases, want %d", tt.name, got, tt.want)
		}
	}
}

func TestReleases(t *testing.T) {
	// The pod was evicted at 0, it has been clear since 10 s, now is 50 s: the
	// transition period and the first back-off have just passed.
	base := func(change func(in *ReleaseInput)) ReleaseInput {
		in := ReleaseInput{
			Now: t0.Add(50 * time.Second), Records: []holds.Record{killed(1, 0, 900*mi)}, ClearSince: memoryClear(t0.Add(10 * time.Second)),
			Rooms: map[Signal]Room{MemoryAvailable: {Available: 3 * gi, Need: 600 * mi}}, Transition: 30 * time.Second, HoldMaximum: time.Hour,
		}
		if change != nil {
			change(&in)
		}
		return in
	}
	for _, tt := range []struct {
		name   string
		change func(in *ReleaseInput)
		want   []string
	}{
		{"transition period and back-off have passed", nil, []string{"u1 pressure-over"}},
		{"a moment too early", func(in *ReleaseInput) { in.Now = in.Now.Add(-time.Nanosecond) }, nil},
		{"gone, while the pressure lasts", func(in *ReleaseInput) {
			in.ClearSince, in.Ended = memoryClear(time.Time{}), map[string]string{"u1": ReleasedPodGone}
		}, []string{"u1 pod-gone"}},
		{"being deleted, while memory cannot be read", func(in *ReleaseInput) {
			in.ClearSince, in.Ended = memoryClear(time.Time{}), map[string]string{"u1": ReleasedPodDeleted}
		}, []string{"u1 pod-deleted"}},
		{"another one is gone", func(in *ReleaseInput) {
			in.ClearSince, in.Ended = memoryClear(time.Time{}), map[string]string{"u2": ReleasedPodGone}
		}, nil},
		{"not clear", func(in *ReleaseInput) { in.ClearSince = memoryClear(time.Time{}) }, nil},
		{"clear since before the eviction: counted from the eviction", func(in *ReleaseInput) {
			in.ClearSince, in.Now = memoryClear(t0.Add(-time.Hour)), t0.Add(40*time.Second-1)
		}, nil},
		{"… and then", func(in *ReleaseInput) {
			in.ClearSince, in.Now = memoryClear(t0.Add(-time.Hour)), t0.Add(40*time.Second)
		}, []string{"u1 pressure-over"}},
		{"the second eviction waits longer", func(in *ReleaseInput) { in.Records[0].Repeat = 1 }, nil},
		{"… 20 s", func(in *ReleaseInput) { in.Records[0].Repeat = 1; in.Now = t0.Add(60 * time.Second) }, []string{"u1 pressure-over"}},
		{"the tenth 5 min", func(in *ReleaseInput) { in.Records[0].Repeat = 9; in.Now = t0.Add(340*time.Second - 1) }, nil},
		{"… and then", func(in *ReleaseInput) { in.Records[0].Repeat = 9; in.Now = t0.Add(340 * time.Second) }, []string{"u1 pressure-over"}},
		{"memory unknown", func(in *ReleaseInput) { in.ClearSince = memoryClear(time.Time{}) }, nil},
		{"it would not fit", func(in *ReleaseInput) { in.Rooms[MemoryAvailable] = Room{Available: 1500 * mi, Need: 600 * mi} }, nil},
		{"it would just fit", func(in *ReleaseInput) { in.Rooms[MemoryAvailable] = Room{Available: 1500*mi + 1, Need: 600 * mi} }, []string{"u1 pressure-over"}},
		{"it is larger than what is available", func(in *ReleaseInput) { in.Records[0].Usage = 1 << 62 }, nil},
		{"a release less than 10 s ago", func(in *ReleaseInput) { in.LastRelease = in.Now.Add(-10*time.Second + 1) }, nil},
		{"a release 10 s ago", func(in *ReleaseInput) { in.LastRelease = in.Now.Add(-10 * time.Second) }, []string{"u1 pressure-over"}},
		{"one at a time, the oldest first", func(in *ReleaseInput) {
			in.Records = []holds.Record{killed(2, time.Second, 0), killed(1, 0, 0), killed(3, 2*time.Second, 0)}
		}, []string{"u1 pressure-over"}},
		{"the first that fits", func(in *ReleaseInput) {
			in.Records = []holds.Record{killed(1, 0, 8*gi), killed(2, time.Second, 100*mi)}
		}, []string{"u2 pressure-over"}},
		{"gone for 2 min, pressure or not", func(in *ReleaseInput) {
			in.ClearSince = memoryClear(time.Time{})
			in.AbsentSince = map[string]time.Time{"u1": in.Now.Add(-2 * time.Minute)}
		}, []string{"u1 pod-gone"}},
		{"gone for less", func(in *ReleaseInput) {
			in.ClearSince = memoryClear(time.Time{})
			in.AbsentSince = map[string]time.Time{"u1": in.Now.Add(-2*time.Minute + 1)}
		}, nil},
		{"holdMaximum, pressure or not", func(in *ReleaseInput) {
			in.ClearSince, in.Now = memoryClear(time.Time{}), t0.Add(time.Hour)
		}, []string{"u1 maximum"}},
		{"before holdMaximum", func(in *ReleaseInput) { in.ClearSince, in.Now = memoryClear(time.Time{}), t0.Add(time.Hour-1) }, nil},
		{"gone pods are not paced", func(in *ReleaseInput) {
			in.Records = []holds.Record{killed(1, 0, 0), killed(2, 0, 0), killed(3, 0, 0)}
			in.AbsentSince = map[string]time.Time{"u1": t0.Add(-time.Hour), "u3": t0.Add(-time.Hour)}
		}, []string{"u1 pod-gone", "u2 pressure-over", "u3 pod-gone"}},
		{"an intent belongs to its kill", func(in *ReleaseInput) {
			in.Records[0].State, in.Now = holds.Intent, t0.Add(2*time.Hour)
			in.AbsentSince = map[string]time.Time{"u1": t0}
		}, nil},
		{"a released one stays", func(in *ReleaseInput) { in.Records[0].State = holds.Released }, nil},
		{"nothing", func(in *ReleaseInput) { in.Records = nil }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := base(tt.change)
			before := slices.Clone(in.Records)
			var got []string
			for _, r := range Releases(in) {
				got = append(got, r.Record.UID+" "+r.Reason)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("released %q, want %q", got, tt.want)
			}
			if !slices.Equal(in.Records, before) {
				t.Error("the input was changed")
			}
		})
	}
}
