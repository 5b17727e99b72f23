package eviction

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Each departure from kubelet, and what its switch gives back.
func TestDepartures(t *testing.T) {
	for _, tt := range []struct {
		name      string
		off       func(*AsKubelet)
		available uint64
		pods      []testPod
		dark      string // the pod whose usage nobody can tell
		soft      bool
		ours      []string
		kubelets  []string
	}{
		{
			name: "pod without numbers", off: func(a *AsKubelet) { a.UnmeasuredFirst = true }, available: 450 * mi,
			pods: []testPod{{uid: "hog", usage: 2 * gi}, {uid: "dark", usage: 2 * gi, priority: 1000}}, dark: "dark",
			ours: []string{"evicted hog"}, kubelets: []string{"evicted dark"},
		},
		{
			name: "early band", off: func(a *AsKubelet) { a.WithinRequest = true }, available: 450 * mi,
			pods: []testPod{{uid: "inside", usage: 2 * gi, request: 4 * gi}},
			ours: []string{"noVictim -"}, kubelets: []string{"evicted inside"},
		},
		{
			name: "soft threshold", off: func(a *AsKubelet) { a.WithinRequest = true }, available: 900 * mi, soft: true,
			pods: []testPod{{uid: "inside", usage: 2 * gi, request: 4 * gi}},
			ours: []string{"noVictim -"}, kubelets: []string{"evicted inside"},
		},
		{
			name: "nothing to free", off: func(a *AsKubelet) { a.FreesNothing = true }, available: 500*mi - 4096,
			pods: []testPod{{uid: "tiny", usage: mi / 2}},
			ours: []string{"noVictim -"}, kubelets: []string{"evicted tiny"},
		},
		{
			name: "pressure from outside", off: func(a *AsKubelet) { a.NoBreakers = true }, available: 300 * mi,
			pods: []testPod{{uid: "a", usage: 20 * mi}, {uid: "b", usage: 10 * mi}},
			ours: []string{"evicted a"}, kubelets: []string{"evicted a", "evicted b"},
		},
	} {
		for _, asKubelet := range []bool{false, true} {
			want, name := tt.ours, tt.name+", ours"
			if asKubelet {
				want, name = tt.kubelets, tt.name+", kubelet's"
			}
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r := softRig(t)
					if !tt.soft {
						r.set.Soft = nil
					}
					if asKubelet {
						tt.off(&r.set.Rules.AsKubelet)
					}
					for _, p := range tt.pods {
						c := r.add(p)
						if p.uid == tt.dark {
							c.statErr = errors.New("no such file")
						}
					}
					defer r.startSoft()()
					r.node.setAvailable(tt.available)
					pass(40 * time.Second)
					got := slices.DeleteFunc(r.outcomes(), func(o string) bool { return len(want) > 0 && want[0] != "noVictim -" && o == "noVictim -" })
					if !slices.Equal(got, want) {
						t.Errorf("decisions %q, want %q", got, want)
					}
				})
			})
		}
	}
}

// Below half the threshold hardMemoryGrace is given only as kubelet would.
func TestGraceBelowHalf(t *testing.T) {
	for _, asKubelet := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			r.set.HardGrace = 2 * time.Second
			r.set.Rules.AsKubelet.GraceBelowHalf = asKubelet
			c := r.add(testPod{uid: "hog", usage: 2 * gi})
			defer r.start()()
			pass(2 * time.Second)
			r.node.setAvailable(200 * mi)
			pass(5 * time.Second)
			r.wantOutcomes("evicted hog")
			if got := killsOf(c) == 0; got != asKubelet {
				t.Errorf("as kubelet %t: given time %t", asKubelet, got)
			}
		})
	}
}
