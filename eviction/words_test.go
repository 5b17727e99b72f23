package eviction

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

func TestMemoryAvailableFromWords(t *testing.T) {
	for _, word := range []string{"verified", "kubelet", "kernel"} {
		if f, err := ParseMemoryAvailableFrom(word); err != nil || f.String() != word {
			t.Errorf("%q: %v, %v", word, f, err)
		}
	}
	for _, word := range []string{"", "Verified", "psi"} {
		if _, err := ParseMemoryAvailableFrom(word); err == nil || !strings.Contains(err.Error(), "verified, kubelet or kernel") {
			t.Errorf("%q: error %v", word, err)
		}
	}
}

func FuzzParseMemoryAvailableFrom(f *testing.F) {
	for _, s := range []string{"verified", "kubelet", "kernel", "", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseMemoryAvailableFrom(s); err == nil && v.String() != s {
			t.Errorf("%q became %q", s, v)
		}
	})
}

func TestEveryReasonHasItsWords(t *testing.T) {
	seen := map[string]bool{}
	for n := Chosen; n < noVictims; n++ {
		for _, s := range []string{n.String(), n.Reason()} {
			if s == "" || s == "other" || seen[s] {
				t.Errorf("reason %d: %q", n, s)
			}
			seen[s] = true
		}
	}
}

func TestSignalsAreKubelets(t *testing.T) {
	want := "memory.available allocatableMemory.available nodefs.available nodefs.inodesFree imagefs.available imagefs.inodesFree containerfs.available containerfs.inodesFree pid.available"
	var got []string
	for _, s := range Signals() {
		got = append(got, string(s))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}

func TestQuantityAndRequestWords(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 1000: "1k", 1 << 20: "1Mi", 1<<20 + 5: "1Mi", 430*mi + 999: "430Mi", 3 * gi: "3Gi", 1<<64 - 1: "4Ei"} {
		if got := quantity(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for want, v := range map[string]inventory.Value[int64]{
		"unknown":      {Source: inventory.FromDefault},
		"0":            {Source: inventory.FromCRI, Exact: true},
		"at most 64Mi": {Value: 64 * mi, Source: inventory.FromCRI, Slack: 16 * mi},
		"64Mi":         {Value: 64 * mi, Source: inventory.FromCRI, Exact: true},
	} {
		if got := requestText(v); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}

func TestStateSaysWhatIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.add(testPod{uid: "hog", usage: 4 * gi}).immortal = true
		stop := r.start()
		defer stop()
		pass(2 * time.Second)
		if s := r.eng.State(); s.Waiting != "" || s.Memory.Met {
			t.Errorf("%+v in calm times", s)
		}
		r.node.setAvailable(200 * mi)
		pass(1500 * time.Millisecond)
		s := r.eng.State()
		if !strings.Contains(s.Waiting, "a kill is in flight") || !s.Memory.Met || s.Held != 1 || s.Memory.MetSince.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

func TestLessThanAskedForIsSaid(t *testing.T) {
	r := newRig(t)
	e := r.build()
	e.degraded("sampler", nil)
	e.degraded("killer", errors.New("SCHED_FIFO refused"))
	if got := e.State().Degraded; len(got) != 1 || got[0] != "killer: SCHED_FIFO refused" {
		t.Errorf("%q", got)
	}
}
