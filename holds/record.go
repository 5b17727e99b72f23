package holds

import (
	"errors"
	"fmt"
	"time"
)

// FileName is the holds file's name in the run directory.
const FileName = "holds"

// Slots is the fixed number of records in the file.
const Slots = 1024

// RecordSize is the fixed size of one record, in bytes.
const RecordSize = 1024

// The most bytes each text of a Record may have.
const (
	MaxUID           = 64
	MaxNamespace     = 63
	MaxName          = 253
	MaxSandboxID     = 64
	MaxCgroup        = 384
	MaxSignal        = 32
	MaxReleaseReason = 32
)

// maxID keeps "the ID after the greatest" far from wrapping around: a record
// that says more is damaged.
const maxID = 1 << 62

var (
	// ErrLocked says that another process is the writer; the message names its
	// process ID.
	ErrLocked = errors.New("the holds file has another writer")
	// ErrFull says that every slot holds a pod.
	ErrFull = errors.New("every slot of the holds file is taken")
	// ErrNotFound says that no record has this ID.
	ErrNotFound = errors.New("no record with this id")
	// ErrSlot says that the slot is no longer reserved by this caller.
	ErrSlot = errors.New("the slot is not reserved")
	// ErrUsed says that a Prepared was written once already.
	ErrUsed = errors.New("the prepared record was written already")
	// ErrInvalid says that a record cannot be encoded; the message names the
	// field.
	ErrInvalid = errors.New("the record is not valid")
	// ErrBadHeader says that a file is not a holds file of this version.
	ErrBadHeader = errors.New("bad holds file header")
	// ErrBadRecord says that a record is torn or otherwise damaged.
	ErrBadRecord = errors.New("bad holds record")
	// ErrClosed says that the writer, reader or ledger was closed.
	ErrClosed = errors.New("closed")
)

// State is what is known of one decision.
type State uint8

const (
	// Free marks a slot without a record.
	Free State = iota
	// Intent: the kill was decided and may or may not have been carried out.
	Intent
	// Killed: the pod's cgroup was seen empty.
	Killed
	// Released: the pod may start again.
	Released
)

// String returns the state's name as it stands in JSON.
func (s State) String() string {
	switch s {
	case Free:
		return "free"
	case Intent:
		return "intent"
	case Killed:
		return "killed"
	case Released:
		return "released"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Record is one decision about one pod. Times are UTC with a resolution of one
// nanosecond; the zero time means "not yet".
type Record struct {
	// ID is the number of the decision, unique and rising across restarts.
	ID    uint64
	State State
	// Frozen says that the kill may have left the v1 freezer on: thaw at start.
	Frozen bool
	// Soft says that the pod is asked to end first: its kill has not begun.
	Soft bool

	UID, Namespace, Name string
	SandboxID            string
	// Cgroup is the pod's cgroup below the hierarchy root.
	Cgroup      string
	CgroupInode uint64

	// Signal is the eviction signal, like "memory.available".
	Signal string
	// Threshold is the value the signal had to fall below, in bytes.
	Threshold int64
	// Available is the kernel's reading at the decision, in bytes.
	Available int64
	// AvailableKubelet is kubelet's reading at the decision, in bytes.
	AvailableKubelet int64
	// Usage and Request are the pod's, in bytes.
	Usage, Request int64
	Priority       int32
	// Repeat is how often this pod had been evicted before.
	Repeat uint32

	Decided, KilledAt, ReleasedAt time.Time
	// ReleaseReason is a word like "pressure-over", "pod-gone", "by-hand".
	ReleaseReason string
}

// Holds says whether the record keeps its pod down.
func (r Record) Holds() bool { return r.State == Intent || r.State == Killed }

// Numbers is what is only known at the moment of the decision.
type Numbers struct {
	ID uint64
	// Available, AvailableKubelet, Threshold and Usage are in bytes.
	Available, AvailableKubelet, Threshold, Usage int64
	// Decided is in unix nanoseconds.
	Decided int64
	Frozen  bool
	// Signal replaces that of the prepared record; empty leaves it.
	Signal string
}
