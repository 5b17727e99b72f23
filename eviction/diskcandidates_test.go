package eviction

import (
	"errors"
	"testing"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// A pod has the tasks of all its cgroups: none in one that is gone, and an unknown
// number when one cannot be read.
func TestPIDCandidate(t *testing.T) {
	read := func(path string) (uint64, error) {
		switch path {
		case "/gone":
			return 0, cgroupfs.ErrGone
		case "/broken":
			return 0, errors.New("broken")
		}
		return 30, nil
	}
	for _, c := range []struct {
		paths []string
		usage uint64
		known bool
	}{
		{[]string{"/a"}, 30, true},
		{[]string{"/a", "/gone", "/b"}, 60, true},
		{[]string{"/gone"}, 0, false},
		{nil, 0, false},
		{[]string{"/broken", "/a"}, 0, false},
		{[]string{"/a", "/broken"}, 0, false},
	} {
		got := pidCandidate(&PlanPod{Candidate: Candidate{UID: "u"}, paths: c.paths}, read)
		if got.Known != c.known || got.Usage != c.usage || got.Gain != c.usage {
			t.Errorf("%q: %+v, want %d, known %v", c.paths, got, c.usage, c.known)
		}
	}
}
