package eviction

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// diskPod is a candidate with everything known.
func diskPod(uid string, priority int32, request, usage, gain uint64) Candidate {
	return Candidate{UID: uid, Priority: priority, Request: request, RequestKnown: true, Usage: usage, Gain: gain, Known: true}
}

// diskOrder ranks candidates and names them.
func diskOrder(u Unit, o DiskRank, cs ...Candidate) string {
	slices.SortFunc(cs, func(a, b Candidate) int { return compareDisk(&a, &b, u, o) })
	var names []string
	for _, c := range cs {
		names = append(names, c.UID)
	}
	return strings.Join(names, " ")
}

func TestDiskOrder(t *testing.T) {
	unknown := Candidate{UID: "unknown"}
	for _, c := range []struct {
		name string
		unit Unit
		rank DiskRank
		pods []Candidate
		want string
	}{
		{"over the request first, then priority, then excess", Bytes, ourDiskRank(0), []Candidate{
			diskPod("within", -5, 10*gi, 9*gi, 9*gi), diskPod("much", 0, gi, 6*gi, 6*gi), diskPod("little", 0, gi, 2*gi, 2*gi), diskPod("low", -1, gi, 2*gi, 2*gi),
		}, "low much little within"},
		{"what nobody asked for knows no request", Bytes, ourDiskRank(0), []Candidate{
			{UID: "small", Known: true, Usage: gi, Gain: gi}, {UID: "big", Known: true, Usage: 9 * gi, Gain: 9 * gi},
		}, "big small"},
		{"every inode is over", Inodes, ourDiskRank(0), []Candidate{
			diskPod("none", -5, 0, 0, 0), diskPod("few", 0, 0, 100, 100), diskPod("many", 0, 0, 1000, 1000),
		}, "many few none"},
		{"departure PlainInodes: a request in bytes is no count", Inodes, ourDiskRank(0), []Candidate{
			diskPod("asked", 0, gi, 1000, 1000), diskPod("not", 0, 0, 100, 100),
		}, "asked not"},
		{"kubelet's: any request in bytes puts a pod last", Inodes, DiskRank{}, []Candidate{
			diskPod("asked", 0, gi, 1000, 1000), diskPod("not", 0, 0, 100, 100),
		}, "not asked"},
		{"departure SmallGainLast", Bytes, DiskRank{SmallGainLast: true, Shortage: 100 * gi}, []Candidate{
			diskPod("volumes", 0, 0, 50*gi, gi), diskPod("layer", 0, 0, 20*gi, 20*gi),
		}, "layer volumes"},
		{"kubelet's: what a stop gives back plays no part", Bytes, DiskRank{Shortage: 100 * gi}, []Candidate{
			diskPod("volumes", 0, 0, 50*gi, gi), diskPod("layer", 0, 0, 20*gi, 20*gi),
		}, "volumes layer"},
		{"departure UnknownLast", Bytes, DiskRank{UnknownLast: true}, []Candidate{unknown, diskPod("known", 0, 0, gi, gi)}, "known unknown"},
		{"kubelet's: pods without numbers go first", Bytes, DiskRank{}, []Candidate{diskPod("known", 0, 0, gi, gi), unknown}, "unknown known"},
		{"kubelet's: of PIDs the priority comes before that", Tasks, DiskRank{}, []Candidate{diskPod("low", -1, 0, 800, 800), diskPod("same", 0, 0, 800, 800), unknown}, "low unknown same"},
		{"PIDs: priority, then number", Tasks, ourDiskRank(100), []Candidate{
			diskPod("many", 0, 0, 900, 900), diskPod("more", 0, 0, 950, 950), diskPod("low", -1, 0, 800, 800),
		}, "low more many"},
		{"a soft eviction that is under way comes first", Bytes, ourDiskRank(0), []Candidate{
			diskPod("big", -9, 0, 9*gi, 9*gi), {UID: "going", Known: true, Evicting: true, Usage: gi, Gain: gi},
		}, "going big"},
		{"the UID makes it total", Bytes, ourDiskRank(0), []Candidate{diskPod("b", 0, 0, gi, gi), diskPod("a", 0, 0, gi, gi)}, "a b"},
	} {
		if got := diskOrder(c.unit, c.rank, c.pods...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Whatever the departures, the order is one: antisymmetric and transitive.
func TestDiskOrderIsTotal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		u := []Unit{Bytes, Inodes, Tasks}[rng.IntN(3)]
		o := DiskRank{Shortage: rng.Uint64N(50), SmallGainLast: rng.IntN(2) == 0, UnknownLast: rng.IntN(2) == 0, PlainInodes: rng.IntN(2) == 0}
		var c [3]Candidate
		for i := range c {
			c[i] = Candidate{
				UID: string(rune('a' + i)), Priority: rng.Int32N(3), Request: rng.Uint64N(4), RequestKnown: rng.IntN(2) == 0,
				Usage: rng.Uint64N(5), Gain: rng.Uint64N(5), Known: rng.IntN(4) > 0, Evicting: rng.IntN(4) == 0,
			}
			if !c[i].Known {
				c[i].Usage, c[i].Gain = 0, 0
			}
		}
		ab, ba := compareDisk(&c[0], &c[1], u, o), compareDisk(&c[1], &c[0], u, o)
		if ab != -ba {
			t.Fatalf("%+v %+v: %d and %d", c[0], c[1], ab, ba)
		}
		if ab < 0 && compareDisk(&c[1], &c[2], u, o) < 0 && compareDisk(&c[0], &c[2], u, o) >= 0 {
			t.Fatalf("not transitive: %+v with %+v", c, o)
		}
	}
}

// Nobody dies for nothing: a pod that frees nothing on the device is not chosen,
// and what only its deletion would free is said.
func TestNobodyToFreeDisk(t *testing.T) {
	volumes, nothing, unknown := diskPod("volumes", 0, 0, 60*gi, 0), diskPod("nothing", 0, 0, 0, 0), Candidate{UID: "unknown"}
	inside := diskPod("inside", 0, 10*gi, 9*gi, 9*gi)
	for _, c := range []struct {
		name     string
		pods     []Candidate
		deletion []uint64
		barred   []bool
		overOnly bool
		rank     DiskRank
		want     NoVictim
		victim   int
	}{
		{"only volumes", []Candidate{volumes, nothing}, []uint64{60 * gi, 0}, []bool{false, false}, false, ourDiskRank(gi), OnlyDeletion, -1},
		{"departure GainOnly off", []Candidate{nothing, volumes}, []uint64{0, 60 * gi}, []bool{false, false}, false, DiskRank{}, Chosen, 1},
		{"nothing at all", []Candidate{nothing}, []uint64{0}, []bool{false}, false, ourDiskRank(gi), NothingToFree, -1},
		{"not known", []Candidate{unknown}, []uint64{0}, []bool{false}, false, ourDiskRank(gi), NoNumbers, -1},
		{"barred", []Candidate{inside}, []uint64{0}, []bool{true}, false, ourDiskRank(gi), AllBarred, -1},
		{"soft, within its request", []Candidate{inside}, []uint64{0}, []bool{false}, true, ourDiskRank(gi), WithinRequest, -1},
		{"hard, within its request", []Candidate{inside}, []uint64{0}, []bool{false}, false, ourDiskRank(gi), Chosen, 0},
		{"no pods", nil, nil, nil, false, ourDiskRank(gi), NoPods, -1},
	} {
		victim, why := chooseDisk(c.pods, c.deletion, c.barred, Bytes, c.overOnly, c.rank)
		if victim != c.victim || why != c.want {
			t.Errorf("%s: %d, %s; want %d, %s", c.name, victim, why.Reason(), c.victim, c.want.Reason())
		}
	}
}

// bugs.md B29: a few PIDs of low priority do not help a node that has run out.
func TestCaseB29(t *testing.T) {
	const pidMax = 32768
	limit := uint64(pidMax / 10)
	p1, p2 := diskPod("p1", 0, 0, 12000, 12000), diskPod("p2", -1, 0, 5, 5)
	shortage := limit - (limit - 200)
	if got := diskOrder(Tasks, ourDiskRank(shortage), p2, p1); got != "p1 p2" {
		t.Errorf("ours: %q", got)
	}
	if got := diskOrder(Tasks, DiskRank{Shortage: shortage}, p1, p2); got != "p2 p1" {
		t.Errorf("kubelet's: %q", got)
	}
}

// bugs.md B62: an emptyDir counts: the pod with 60 GiB in one comes before the
// one with 1 GiB of logs, where its deletion frees it.
func TestCaseB62(t *testing.T) {
	logs := &PodUsage{Parts: []UsagePart{{What: PartLogs, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: gi, Known: true}}}}
	volume := &PodUsage{Parts: []UsagePart{{What: PartEmptyDir, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 60 * gi, Known: true}}}}
	c1, _ := diskCandidate(&PlanPod{Candidate: Candidate{UID: "u1"}}, logs, diskTarget{device: 1, unit: Bytes, told: true})
	c2, _ := diskCandidate(&PlanPod{Candidate: Candidate{UID: "u2"}}, volume, diskTarget{device: 1, unit: Bytes, told: true})
	if got := diskOrder(Bytes, ourDiskRank(10*gi), c1, c2); got != "u2 u1" {
		t.Errorf("order %q, want u2 u1", got)
	}
}

// bugs.md B65: what a pod writes into /etc/hosts and its termination log counts,
// though only kubelet's deletion of it gives that back.
func TestCaseB65(t *testing.T) {
	u1 := &PodUsage{Parts: []UsagePart{
		{What: PartEtcHosts, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 5 * gi, Known: true}},
		{What: PartTerminationLog, Name: "c", Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 3 * gi, Known: true}},
	}}
	for told, gain := range map[bool]uint64{true: 8 * gi, false: 0} {
		c, d := diskCandidate(&PlanPod{Candidate: Candidate{UID: "u1"}}, u1, diskTarget{device: 1, unit: Bytes, told: told, removes: true})
		if c.Usage != 8*gi || c.Gain != gain || d.deletion != 8*gi {
			t.Errorf("told %v: usage %d, gain %d, by deletion %d", told, c.Usage, c.Gain, d.deletion)
		}
	}
}

// bugs.md B58: deleted files that are still open are the pod's, and its stop
// frees them.
func TestCaseB58(t *testing.T) {
	u1 := &PodUsage{Parts: []UsagePart{{What: PartDeletedFiles, Device: 1, Freed: FreedByStop, Bytes: UsageNumber{Value: 60 * gi, Known: true}}}}
	u2 := &PodUsage{Parts: []UsagePart{{What: PartWritableLayer, Device: 1, Freed: FreedByRemoval, Bytes: UsageNumber{Value: 20 * gi, Known: true}}}}
	c1, _ := diskCandidate(&PlanPod{Candidate: Candidate{UID: "u1"}}, u1, diskTarget{device: 1, unit: Bytes, removes: true})
	c2, _ := diskCandidate(&PlanPod{Candidate: Candidate{UID: "u2"}}, u2, diskTarget{device: 1, unit: Bytes, removes: true})
	if got := diskOrder(Bytes, ourDiskRank(gi), c2, c1); got != "u1 u2" || c1.Gain != 60*gi {
		t.Errorf("order %q, gain %d", got, c1.Gain)
	}
}
