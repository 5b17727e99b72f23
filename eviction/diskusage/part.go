package diskusage

import "time"

// Kind says what a part is.
type Kind string

// The kinds.
const (
	WritableLayer  Kind = "writableLayer"
	DeletedFiles   Kind = "deletedFiles" // deleted and still open
	Logs           Kind = "logs"
	EmptyDir       Kind = "emptyDir"
	EtcHosts       Kind = "etcHosts"
	TerminationLog Kind = "terminationLog"
)

// Freed says what gives a part's space back.
type Freed uint8

const (
	// ByStop: the end of the pod's processes.
	ByStop Freed = iota
	// ByRemoval: the removal of the containers that an eviction stops.
	ByRemoval
	// ByDeletion: kubelet, when the pod is over for Kubernetes
	// (facts/kubelet.md §6.7).
	ByDeletion
)

// freed is what gives a part of this kind back.
func (k Kind) freed() Freed {
	switch k {
	case DeletedFiles:
		return ByStop
	case WritableLayer:
		return ByRemoval
	default:
		return ByDeletion
	}
}

// Source says where a part's numbers come from.
type Source string

// The sources.
const (
	FromCRI   Source = "cri"   // the runtime's stats
	FromQuota Source = "quota" // a project quota of the filesystem
	FromWalk  Source = "walk"  // the directory was walked
	FromProc  Source = "proc"  // open files of the pod's processes
)

// Number is a number that may not be known; Value is 0 then.
type Number struct {
	Value uint64
	Known bool
	// Exact is false for an estimate.
	Exact bool
}

// Part is one part of what a pod has on disk.
type Part struct {
	Kind Kind
	// Name is that of the container or volume; empty for the pod's own.
	Name string
	// Device is st_dev of the filesystem it lies on; 0 when that is not known.
	Device uint64
	Freed  Freed
	// Bytes are allocated blocks, not file sizes: a sparse file has few.
	Bytes, Inodes Number
	// AtLeast: there is more than the numbers say, and how much is not known.
	AtLeast bool
	Source  Source
	// At is when it was measured; for the runtime's stats their own timestamp.
	At time.Time
	// Why says why a number is unknown or not complete; empty otherwise.
	Why string

	// project is the quota project the part was counted in, 0 for none.
	project uint32
}

// Usage is what is known of all pods at one moment; never changed after it was
// handed out.
type Usage struct {
	// Pods are by UID. A pod that is not in it is unknown, which is not the same as
	// one that has nothing.
	Pods map[string]*Pod
}

// Pod is what is known of one pod; never changed after it was handed out.
type Pod struct {
	Parts []Part
}

// blockSize is the unit of st_blocks, whatever the filesystem's own is.
const blockSize = 512
