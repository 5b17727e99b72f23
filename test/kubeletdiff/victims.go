package kubeletdiff

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// difference is one disagreement.
type difference struct {
	step int
	at   time.Duration // since the beginning of the scenario
	text string
}

func (d *difference) String() string {
	return fmt.Sprintf("step %d, after %s: %s", d.step, d.at, d.text)
}

// acted compares a decision of ours with what kubelet does in the same world. The
// slow half, which publishes the conditions, is held up by a decision that it made
// itself: they are compared when that is the only one.
func (d *driver) acted(a *act, alone bool) *difference {
	d.note("ours %s", a)
	if a.pod == "" {
		return d.collects(a)
	}
	v, same := d.passFor(a.line)
	switch {
	case same:
		if len(v.killed) > 1 {
			return d.differ("kubelet takes %d pods in one pass", len(v.killed))
		}
		if diff := d.sameVictim(a, v.killed[0]); diff != nil {
			return diff
		}
	case d.memoryFirst(a, v):
		d.count(cell{outcome: SignalsOnTheirOwn})
		if diff := d.firstInOrder(a); diff != nil {
			return diff
		}
	default:
		return d.differ("ours %s, kubelet %s", a, v)
	}
	if theirs, own := d.k.conditions(), d.o.conditions(); alone && (!theirs.of(a.signal) || !own.of(a.signal)) {
		return d.differ("ours %s; its condition is %t for kubelet and %t for ours", a, theirs.of(a.signal), own.of(a.signal))
	}
	return nil
}

// anytime says whether ours reads a signal between its readings of the file
// systems.
func anytime(sig eviction.Signal) bool { return sig.Memory() || sig == eviction.PIDAvailable }

// passFor lets kubelet look until it acts on a threshold; same is false when it
// does not.
func (d *driver) passFor(l line) (v verdict, same bool) {
	for range picks {
		if anytime(l.signal) {
			v = d.passAt(time.Now())
		} else {
			v = d.pass()
		}
		if v.resource == "" {
			return v, false
		}
		if !v.solved && slices.Contains(v.about(d.softGrace), l) {
			return v, true
		}
	}
	return v, false
}

// memoryFirst says whether kubelet does not come to what ours acts on because a
// threshold of memory is met: the departure SignalsOnTheirOwn.
func (d *driver) memoryFirst(a *act, v verdict) bool {
	return !a.signal.Memory() && v.resource == resourceOf(eviction.MemoryAvailable)
}

// collects compares a collection of garbage by ours: kubelet collects the same for
// that resource or, where nothing can be collected, wants it back.
func (d *driver) collects(a *act) *difference {
	var v verdict
	for range picks {
		if v = d.pass(); v.resource == "" {
			break
		}
		if v.resource == resourceOf(a.signal) && d.covers(v, a.signal) {
			return nil
		}
	}
	if d.memoryFirst(a, v) {
		d.count(cell{outcome: SignalsOnTheirOwn})
		return nil
	}
	return d.differ("ours %s, kubelet %s", a, v)
}

// covers says whether kubelet collected all that lies on the device of a signal.
func (d *driver) covers(v verdict, sig eviction.Signal) bool {
	for kind := range garbageKinds {
		if d.w.sc.Layout.lies(kind, sig) && !v.collected[kind] {
			return false
		}
	}
	return true
}

// carriedOut looks at what became of a decision that was let go on.
func (d *driver) carriedOut(a *act) *difference {
	synctest.Wait()
	if a.pod == "" {
		return nil
	}
	given, ok := d.o.grace(a.pod)
	if !ok {
		return d.differ("ours %s and does not stop it", a)
	}
	// At least 2 s at the runtime (Kubernetes 1.37, pkg/kubelet/kuberuntime,
	// minimumGracePeriodInSeconds); a hard eviction has 1 s before that.
	want := int64(2)
	if a.soft {
		want = max(want, d.softGrace(a.pod))
	}
	if given != want {
		return d.differ("ours gives %s %d s, kubelet %d s at the runtime", a.pod, given, want)
	}
	outcome := HardVictim
	if a.soft {
		outcome = SoftVictim
	}
	d.countFocus(a.signal, outcome)
	return nil
}

// sameVictim says whether kubelet's order tells the two pods apart.
func (d *driver) sameVictim(a *act, theirs taken) *difference {
	ki, oi := d.w.index(theirs.pod), d.w.index(a.pod)
	kk, ok := d.w.keyOf(ki, a.signal), d.w.keyOf(oi, a.signal)
	if i, first := d.w.beaten(ki, a.signal); !first {
		return d.differ("kubelet takes %s with %+v although %s has %+v: the comparison itself is wrong", theirs.pod, kk, d.w.sc.Pods[i].Name, d.w.keyOf(i, a.signal))
	}
	if kk != ok {
		return d.differ("ours takes %s with %+v for %s, kubelet %s with %+v", a.pod, ok, a.signal, theirs.pod, kk)
	}
	return nil
}

// firstInOrder says whether no pod goes before ours in kubelet's order.
func (d *driver) firstInOrder(a *act) *difference {
	oi := d.w.index(a.pod)
	if i, first := d.w.beaten(oi, a.signal); !first {
		return d.differ("ours takes %s with %+v for %s although %s has %+v", a.pod, d.w.keyOf(oi, a.signal), a.signal, d.w.sc.Pods[i].Name, d.w.keyOf(i, a.signal))
	}
	return nil
}
