package eviction

import (
	"slices"
	"testing"
	"time"
)

// Each departure from kubelet for disk, inodes and PIDs, and what its switch gives
// back. The node has one file system of 100 GiB and 1,000,000 inodes.
func TestSlowDepartures(t *testing.T) {
	disk := func(uid string, bytes, inodes uint64) func(*rig, *fakeDisks) {
		return func(r *rig, f *fakeDisks) {
			r.add(testPod{uid: uid, usage: 100 * mi})
			f.has(uid, 1, bytes, inodes)
		}
	}
	asks := func(uid string, bytes int64) func(*rig, *fakeDisks) {
		return func(r *rig, _ *fakeDisks) { r.facts.storage = map[string]int64{uid: bytes} }
	}
	dark := func(uid string) func(*rig, *fakeDisks) {
		return func(r *rig, _ *fakeDisks) { r.add(testPod{uid: uid, usage: 100 * mi}) }
	}
	for _, tt := range []struct {
		name           string
		off            func(*Rules)
		node           []func(*rig, *fakeDisks)
		soft           bool
		fill           func(*fakeDisks)
		ours, kubelets []string
	}{
		{
			name: "pod without numbers", off: func(r *Rules) { r.AsKubelet.UnmeasuredFirst = true },
			node: []func(*rig, *fakeDisks){disk("writer", 30*gi, 10), dark("dark")},
			ours: []string{"evicted writer"}, kubelets: []string{"evicted dark"},
		},
		{
			name: "soft threshold", off: func(r *Rules) { r.AsKubelet.WithinRequest = true }, soft: true,
			node: []func(*rig, *fakeDisks){disk("inside", 30*gi, 10), asks("inside", 40*gi)},
			ours: []string{"noVictim -"}, kubelets: []string{"evicted inside"},
		},
		{
			name: "nothing to free", off: func(r *Rules) { r.AsKubelet.FreesNothing = true },
			node: []func(*rig, *fakeDisks){func(r *rig, f *fakeDisks) {
				r.add(testPod{uid: "volumes", usage: 100 * mi})
				f.part("volumes", UsagePart{What: PartEmptyDir, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 30 * gi, Known: true}})
			}},
			ours: []string{"noVictim -"}, kubelets: []string{"evicted volumes"},
		},
		{
			name: "pressure from outside", off: func(r *Rules) { r.AsKubelet.NoBreakers = true },
			node: []func(*rig, *fakeDisks){disk("a", 20*mi, 10), disk("b", 10*mi, 10)},
			ours: []string{"evicted a"}, kubelets: []string{"evicted a", "evicted b"},
		},
		{
			name: "a request in bytes is none of inodes", off: func(r *Rules) { r.AsKubelet.InodesLessRequest = true },
			node: []func(*rig, *fakeDisks){disk("asks", mi, 300_000), asks("asks", gi), disk("less", mi, 200_000)},
			fill: func(f *fakeDisks) { f.setInodes("/kubelet", 50_000) },
			ours: []string{"evicted asks"}, kubelets: []string{"evicted less"},
		},
		{
			name: "whose stop frees little is last", off: func(r *Rules) { r.SmallGainLast = false },
			node: []func(*rig, *fakeDisks){
				disk("layer", 20*gi, 10), disk("volume", 40*mi, 10), func(_ *rig, f *fakeDisks) {
					f.part("volume", UsagePart{What: PartEmptyDir, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 30 * gi, Known: true}})
				},
			},
			ours: []string{"evicted layer"}, kubelets: []string{"evicted volume"},
		},
	} {
		for _, asKubelet := range []bool{false, true} {
			want, name := tt.ours, tt.name+", ours"
			if asKubelet {
				want, name = tt.kubelets, tt.name+", kubelet's"
			}
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					r, f := slowRig(t)
					if tt.soft {
						r.set.Slow = []SlowThreshold{{Signal: NodeFsAvailable, Value: threshold(t, "17%"), Grace: 5 * time.Second}}
					}
					if asKubelet {
						tt.off(&r.set.Rules)
					}
					for _, add := range tt.node {
						add(r, f)
					}
					fill := tt.fill
					if fill == nil {
						fill = func(f *fakeDisks) { f.fill(16 * gi) }
					}
					defer r.start()()
					pass(5 * time.Second)
					r.wantOutcomes()
					fill(f)
					pass(20 * time.Second)
					if len(want) > 1 { // kubelet's next pod, once the reading that stands still is believed
						pass(40 * time.Second)
					}
					if got := r.outcomes(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
						t.Errorf("decisions %q, want %q", got, want)
					}
				})
			})
		}
	}
}

// Below half the threshold of PIDs the pod is killed at once, and with the switch
// given the 2 s that kubelet gives.
func TestForkBombGraceAsKubelet(t *testing.T) {
	for _, asKubelet := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			r, f := slowRig(t)
			r.set.Rules.AsKubelet.GraceBelowHalf = asKubelet
			bomb := r.add(testPod{uid: "bomb", usage: 100 * mi})
			f.podPIDs["/kubepods/burstable/podbomb"] = &fakeTasks{bomb, 100}
			defer r.start()()
			pass(3 * time.Second)
			f.mu.Lock()
			f.podPIDs["/kubepods/burstable/podbomb"].n = 32768 - 500 - 1000
			f.mu.Unlock()
			pass(4 * time.Second)
			r.wantOutcomes("evicted bomb")
			if given := len(r.graces()) > 0; given != asKubelet {
				t.Errorf("as kubelet %t: given time %t", asKubelet, given)
			}
		})
	}
}
