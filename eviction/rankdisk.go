package eviction

import "strings"

// DiskRank names the departures from kubelet's order for disk, inodes and PIDs.
// The zero value is kubelet's own (Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go, rankDiskPressureFunc and rankPIDPressure),
// made total by the UID.
type DiskRank struct {
	// Shortage is threshold − available in the signal's unit, for SmallGainLast.
	Shortage uint64
	// SmallGainLast puts pods whose stop frees under 5 % of the shortage last
	// within their class: for disk and inodes over request, or not; for PIDs all
	// (bugs.md B29: kubelet takes a pod of 5 PIDs for its lower priority).
	SmallGainLast bool
	// UnknownLast puts pods without numbers last; kubelet takes them first.
	UnknownLast bool
	// PlainInodes compares inode counts by themselves; kubelet takes the
	// ephemeral-storage request, which is in bytes, off them.
	PlainInodes bool
	// GainOnly takes nobody whose stop frees nothing on the device; kubelet takes
	// them like others.
	GainOnly bool
}

// ourDiskRank has every departure.
func ourDiskRank(shortage uint64) DiskRank {
	return DiskRank{Shortage: shortage, SmallGainLast: true, UnknownLast: true, PlainInodes: true, GainOnly: true}
}

// diskRank is the order these rules ask for.
func (r *Rules) diskRank(shortage uint64) DiskRank {
	return DiskRank{
		Shortage: shortage, SmallGainLast: r.SmallGainLast, UnknownLast: !r.AsKubelet.UnmeasuredFirst,
		PlainInodes: !r.AsKubelet.InodesLessRequest, GainOnly: !r.AsKubelet.FreesNothing,
	}
}

// leastGain is the least a stop must free, in the unit, for a pod to be a victim
// at all; a pause process alone stays below it.
func leastGain(u Unit) uint64 {
	switch u {
	case Inodes:
		return 16
	case Tasks:
		return 2
	}
	return minGain
}

// overDisk says whether the pod has more than it asked for. Nothing can be asked
// for of inodes, so that every pod that has some does. PIDs know no request.
func overDisk(c *Candidate, u Unit) bool {
	switch u {
	case Tasks:
		return false
	case Inodes:
		return c.Known && c.Usage > 0
	}
	return c.OverRequest()
}

// compareDisk orders two candidates for a signal of this unit: negative when a is
// to be evicted before b. A pod that a soft eviction is stopping comes first.
func compareDisk(a, b *Candidate, u Unit, o DiskRank) int {
	// kubelet asks for a pod's number of PIDs after its priority.
	late := u == Tasks && !o.UnknownLast
	if a.Known != b.Known && !late {
		return firstIf(a.Known == o.UnknownLast)
	}
	if a.Evicting != b.Evicting {
		return firstIf(a.Evicting)
	}
	if ao, bo := overDisk(a, u), overDisk(b, u); ao != bo {
		return firstIf(ao)
	}
	if o.SmallGainLast {
		// Rounded up: of a shortage of 10 PIDs one is 5 %, and nothing is not.
		limit := (o.Shortage + smallGainDivisor - 1) / smallGainDivisor
		if as, bs := a.Gain < limit, b.Gain < limit; as != bs {
			return firstIf(bs)
		}
	}
	if a.Priority != b.Priority {
		return firstIf(a.Priority < b.Priority)
	}
	if a.Known != b.Known {
		return firstIf(!a.Known)
	}
	if x, y := excessDisk(a, u, o), excessDisk(b, u, o); x != y {
		return firstIf(x > y)
	}
	if a.Usage != b.Usage {
		return firstIf(a.Usage > b.Usage)
	}
	return strings.Compare(a.UID, b.UID)
}

// excessDisk is what the last key of kubelet's order compares.
func excessDisk(c *Candidate, u Unit, o DiskRank) int64 {
	if u == Tasks || u == Inodes && o.PlainInodes {
		return int64(min(c.Usage, 1<<62))
	}
	return c.Excess()
}

// chooseDisk returns the index of the victim among those that are not barred.
// overOnly (soft thresholds) takes only pods over their request, which is told
// for bytes alone.
func chooseDisk(cands []Candidate, deletion []uint64, barred []bool, u Unit, overOnly bool, o DiskRank) (int, NoVictim) {
	best, seen := -1, [noVictims]bool{}
	least := leastGain(u)
	for i := range cands {
		c := &cands[i]
		switch {
		case barred[i] || c.Out:
			seen[AllBarred] = true
		case !c.Known && o.UnknownLast:
			seen[NoNumbers] = true
		case o.GainOnly && c.Known && c.Gain < least:
			seen[NothingToFree] = true
			if deletion[i] >= least {
				seen[OnlyDeletion] = true
			}
		case overOnly && u == Bytes && c.RequestKnown && !c.Evicting && !c.OverRequest():
			seen[WithinRequest] = true
		case best < 0 || compareDisk(c, &cands[best], u, o) < 0:
			best = i
		}
	}
	if best >= 0 {
		return best, Chosen
	}
	for _, why := range []NoVictim{WithinRequest, OnlyDeletion, NothingToFree, NoNumbers, AllBarred} {
		if seen[why] {
			return -1, why
		}
	}
	return -1, NoPods
}
