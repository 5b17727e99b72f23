package holds

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func encoded(t testing.TB, r Record, revision uint32) []byte {
	t.Helper()
	var buf [RecordSize]byte
	must(t, encode(&buf, r, revision))
	return buf[:]
}

func TestRecordRoundTrip(t *testing.T) {
	longest := sample(maxID)
	longest.UID = strings.Repeat("u", MaxUID)
	longest.Namespace = strings.Repeat("n", MaxNamespace)
	longest.Name = strings.Repeat("m", MaxName)
	longest.SandboxID = strings.Repeat("s", MaxSandboxID)
	longest.Cgroup = strings.Repeat("c", MaxCgroup)
	longest.Signal = strings.Repeat("g", MaxSignal)
	longest.ReleaseReason = strings.Repeat("r", MaxReleaseReason)
	extreme := sample(1)
	extreme.State, extreme.Frozen = Released, false
	extreme.Threshold, extreme.Available, extreme.AvailableKubelet = math.MinInt64, math.MaxInt64, -1
	extreme.Usage, extreme.Request = math.MaxInt64, math.MinInt64
	extreme.Priority, extreme.Repeat, extreme.CgroupInode = math.MinInt32, math.MaxUint32, math.MaxUint64
	local := sample(2)
	local.Decided = local.Decided.In(time.FixedZone("x", 3600))
	for name, r := range map[string]Record{
		"full":    sample(7),
		"least":   {ID: 1, State: Killed, UID: "u"},
		"longest": longest,
		"extreme": extreme,
		"zone":    local,
	} {
		t.Run(name, func(t *testing.T) {
			got, revision, err := decode(encoded(t, r, 9))
			must(t, err)
			want := r
			want.Decided = want.Decided.UTC()
			if got != want || revision != 9 {
				t.Errorf("got %+v revision %d\nwant %+v revision 9", got, revision, want)
			}
		})
	}
}

func TestPrepareRefusesWhatDoesNotFit(t *testing.T) {
	for field, change := range map[string]func(*Record){
		"uid":           func(r *Record) { r.UID = strings.Repeat("x", MaxUID+1) },
		"uid is empty":  func(r *Record) { r.UID = "" },
		"namespace":     func(r *Record) { r.Namespace = strings.Repeat("x", MaxNamespace+1) },
		"name":          func(r *Record) { r.Name = strings.Repeat("x", MaxName+1) },
		"sandboxID":     func(r *Record) { r.SandboxID = strings.Repeat("x", MaxSandboxID+1) },
		"cgroup":        func(r *Record) { r.Cgroup = strings.Repeat("x", MaxCgroup+1) },
		"signal":        func(r *Record) { r.Signal = strings.Repeat("x", MaxSignal+1) },
		"releaseReason": func(r *Record) { r.ReleaseReason = strings.Repeat("x", MaxReleaseReason+1) },
		"decided":       func(r *Record) { r.Decided = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC) },
		"killedAt":      func(r *Record) { r.KilledAt = time.Date(2262, 12, 1, 0, 0, 0, 0, time.UTC) },
		"releasedAt":    func(r *Record) { r.ReleasedAt = time.Unix(0, 0) },
		"state":         func(r *Record) { r.State = Released + 1 },
	} {
		t.Run(field, func(t *testing.T) {
			r := sample(1)
			change(&r)
			_, err := Prepare(r)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), field) {
				t.Errorf("got %v, want ErrInvalid naming %q", err, field)
			}
		})
	}
}

func TestCompleteSetsOnlyTheNumbers(t *testing.T) {
	r := sample(0)
	p, err := Prepare(r)
	must(t, err)
	p.complete(&Numbers{ID: 42, Available: 1, AvailableKubelet: 2, Threshold: 3, Usage: 4, Decided: 5})
	got, _, err := decode(p.buf[:])
	must(t, err)
	want := r
	want.ID, want.State, want.Frozen = 42, Intent, false
	want.Available, want.AvailableKubelet, want.Threshold, want.Usage = 1, 2, 3, 4
	want.Decided, want.KilledAt, want.ReleasedAt = time.Unix(0, 5).UTC(), time.Time{}, time.Time{}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// Every byte of a record, turned in several ways, must make it worthless: a
// hold for another pod would be worse than none.
func TestDecodeNoticesEveryFlippedByte(t *testing.T) {
	whole := encoded(t, sample(7), 1)
	for at := range whole {
		for _, mask := range []byte{0x01, 0x80, 0xff} {
			b := bytes.Clone(whole)
			b[at] ^= mask
			if r, _, err := decode(b); !errors.Is(err, ErrBadRecord) || r != (Record{}) {
				t.Fatalf("byte %d ^ %#x: record %+v, error %v", at, mask, r, err)
			}
		}
	}
}

// Records that end at any byte: short, and filled up with zeros as a torn write
// on a fresh slot leaves them.
func TestDecodeNoticesEveryCut(t *testing.T) {
	whole := encoded(t, sample(7), 1)
	end := len(bytes.TrimRight(whole, "\x00"))
	for n := range RecordSize {
		if _, _, err := decode(whole[:n]); !errors.Is(err, ErrBadRecord) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		b := make([]byte, RecordSize)
		copy(b, whole[:n])
		r, _, err := decode(b)
		switch {
		case n == 0:
			if err != nil || r.State != Free {
				t.Fatalf("a slot of zeros: %+v, %v", r, err)
			}
		case n >= end: // nothing was cut but zeros
			if err != nil {
				t.Fatalf("%d bytes and zeros: %v", n, err)
			}
		case !errors.Is(err, ErrBadRecord):
			t.Fatalf("%d bytes and zeros: %v", n, err)
		}
	}
}

// What carries a right checksum can still be nonsense, from another version.
func TestDecodeChecksWhatTheChecksumCannot(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"layout":     func(b []byte) { b[offLayout] = 2 },
		"state free": func(b []byte) { b[offState] = 0 },
		"state 4":    func(b []byte) { b[offState] = 4 },
		"id 0":       func(b []byte) { clear(b[offID : offID+8]) },
		"id huge":    func(b []byte) { b[offID+7] = 0xff },
		"uid empty":  func(b []byte) { clear(b[offLengths : offLengths+2]) },
		"uid long":   func(b []byte) { b[offLengths] = MaxUID + 1 },
		"reason":     func(b []byte) { b[offLengths+13] = 0xff },
	} {
		t.Run(name, func(t *testing.T) {
			var b [RecordSize]byte
			copy(b[:], encoded(t, sample(7), 1))
			change(b[:])
			seal(&b)
			if r, _, err := decode(b[:]); !errors.Is(err, ErrBadRecord) || r != (Record{}) {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

func FuzzDecodeRecord(f *testing.F) {
	var buf [RecordSize]byte
	for _, r := range []Record{sample(1), {ID: 1, State: Released, UID: "u"}} {
		must(f, encode(&buf, r, 3))
		f.Add(bytes.Clone(buf[:]), true)
		f.Add(bytes.Clone(buf[:500]), false)
	}
	f.Add(make([]byte, RecordSize), false)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, reseal bool) {
		if reseal && len(b) == RecordSize { // reach what stands behind the checksum
			seal((*[RecordSize]byte)(b))
		}
		r, revision, err := decode(b)
		if err != nil {
			if !errors.Is(err, ErrBadRecord) || r != (Record{}) {
				t.Fatalf("record %+v with error %v", r, err)
			}
			return
		}
		if r.State == Free {
			if r != (Record{}) || !isZero(b) {
				t.Fatalf("free, but %+v", r)
			}
			return
		}
		if r.UID == "" || r.ID == 0 {
			t.Fatalf("accepted %+v", r)
		}
		// Times before 1970 cannot be written by us; all else must survive.
		if r.Decided.Unix() < 0 && !r.Decided.IsZero() || r.KilledAt.Unix() < 0 && !r.KilledAt.IsZero() ||
			r.ReleasedAt.Unix() < 0 && !r.ReleasedAt.IsZero() {
			return
		}
		var again [RecordSize]byte
		if err := encode(&again, r, revision); err != nil {
			if r.Decided.Year() > 2261 || r.KilledAt.Year() > 2261 || r.ReleasedAt.Year() > 2261 {
				return
			}
			t.Fatalf("%+v does not encode: %v", r, err)
		}
		r2, revision2, err := decode(again[:])
		if err != nil || r2 != r || revision2 != revision {
			t.Fatalf("%+v became %+v, %v", r, r2, err)
		}
	})
}
