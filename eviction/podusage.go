package eviction

import "time"

// PodUsageSource knows what pods have on disk. Both methods may be called at any
// time from any goroutine, and neither waits for a disk or for the runtime: what
// takes time is done by a goroutine of the source's own.
type PodUsageSource interface {
	// PodUsage returns what is known now, by pod UID. A pod that is not in it is
	// unknown, which is not the same as one that has nothing. Neither the map nor
	// what it points to is ever changed afterwards.
	PodUsage() map[string]*PodUsage
	// Near says that a threshold on these devices (st_dev) is met or not far: newer
	// numbers of them are worth having soon. The next call replaces the list; with
	// none the source goes at its calm pace.
	Near(devices []uint64)
}

// PodUsage is what one pod has on disk. Memory emptyDirs, hostPath and every
// other mount that is not the pod's own are no part of it.
type PodUsage struct {
	Parts []UsagePart
}

// FreedBy says what gives the space of a part back.
type FreedBy uint8

const (
	// FreedByStop: the end of the pod's processes, as with files that were
	// deleted and are still open.
	FreedByStop FreedBy = iota
	// FreedByRemoval: the removal of the containers that an eviction stops, as with
	// writable layers. We do that ourselves after the pod was stopped.
	FreedByRemoval
	// FreedByDeletion: only kubelet, when the pod is over for Kubernetes: disk
	// volumes, logs, etc-hosts, termination logs, containers that ended before.
	FreedByDeletion
)

// String names the step.
func (f FreedBy) String() string {
	switch f {
	case FreedByStop:
		return "stop"
	case FreedByRemoval:
		return "removal"
	case FreedByDeletion:
		return "deletion"
	default:
		return "unknown"
	}
}

// What a UsagePart is.
const (
	PartWritableLayer  = "writableLayer"
	PartDeletedFiles   = "deletedFiles" // deleted and still open
	PartLogs           = "logs"
	PartEmptyDir       = "emptyDir"
	PartEtcHosts       = "etcHosts"
	PartTerminationLog = "terminationLog"
)

// UsageSource says where the numbers of a UsagePart come from.
type UsageSource string

// The sources.
const (
	UsageFromCRI   UsageSource = "cri"   // the runtime's stats
	UsageFromQuota UsageSource = "quota" // a project quota of the filesystem
	UsageFromWalk  UsageSource = "walk"  // the directory was walked
	UsageFromProc  UsageSource = "proc"  // open files of the pod's processes
)

// UsagePart is one part of what a pod has on one device.
type UsagePart struct {
	What string // a Part… constant
	// Name is that of the container or volume, empty for the pod's own.
	Name string
	// Device is st_dev of the filesystem the part lies on.
	Device uint64
	Freed  FreedBy
	// Bytes are allocated blocks and not file sizes, where that can be told.
	Bytes, Inodes UsageNumber
	Source        UsageSource
	// At is when it was measured: for the runtime's stats their own timestamp.
	At time.Time
}

// UsageNumber is a number that may not be known.
type UsageNumber struct {
	Value uint64
	// Known is false for a number that nobody could tell or that is too old to be
	// used; Value is 0 then and says nothing.
	Known bool
	// Exact is false for an estimate, such as the sum of a walk that was broken
	// off or during which files changed.
	Exact bool
}

// usageOn is what a pod has on one device in one unit, by what gives it back.
type usageOn struct {
	total                    uint64 // of all known parts
	stop, removal, deletion  uint64
	known, incomplete, exact bool
	oldest                   time.Time
}

// on adds up the parts on a device: bytes, or inodes. It is known as soon as one
// part is, or when all parts there are lie elsewhere; incomplete says that another
// is not, so that the truth is at least what it says.
func (u *PodUsage) on(device uint64, inodes bool) usageOn {
	out := usageOn{exact: true}
	if u == nil {
		return out
	}
	elsewhere := len(u.Parts) > 0
	for i := range u.Parts {
		p := &u.Parts[i]
		n := p.Bytes
		if inodes {
			n = p.Inodes
		}
		if p.Device != device {
			elsewhere = elsewhere && p.Device != 0
			continue
		}
		elsewhere = false
		if !n.Known {
			out.incomplete, out.exact = true, false
			continue
		}
		out.known = true
		out.exact = out.exact && n.Exact
		out.total += n.Value
		switch p.Freed {
		case FreedByStop:
			out.stop += n.Value
		case FreedByRemoval:
			out.removal += n.Value
		default:
			out.deletion += n.Value
		}
		if out.oldest.IsZero() || p.At.Before(out.oldest) {
			out.oldest = p.At
		}
	}
	out.known = out.known || elsewhere
	return out
}
