package eviction

import (
	"slices"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Report is one decision with all its inputs, as it is kept and printed. All
// amounts are bytes.
type Report struct {
	ID      uint64    `json:"id"`
	Time    time.Time `json:"time"`
	Signal  Signal    `json:"signal"`
	Outcome string    `json:"outcome"` // evicted, evicting, failed, wouldEvict, noVictim, reclaimed, resumed
	Mode    string    `json:"mode"`    // enforce, observe or paused
	Summary string    `json:"summary"`

	// Memory is the sample; for disk, inodes and PIDs its amounts are in the unit
	// of Resource, and there is one reading only.
	Memory     MemoryReport      `json:"memory"`
	Resource   *ResourceReport   `json:"resource,omitempty"`
	Victim     *inventory.Ref    `json:"victim,omitempty"`
	Candidates []CandidateReport `json:"candidates,omitempty"` // in rank order
	// Consumers are the cgroups below the root with the most memory, where the
	// pods are not to blame.
	Consumers []Consumer  `json:"consumers,omitempty"`
	Kill      *KillReport `json:"kill,omitempty"`
	// Soft is what a soft decision was made of; absent for a hard one.
	Soft *SoftReport `json:"soft,omitempty"`
	// Telling is how far Kubernetes is told of it now; absent when it is not.
	Telling *Telling `json:"telling,omitempty"`

	counted bool // it is in the counters
}

// MemoryReport is a sample and what it meant.
type MemoryReport struct {
	Capacity         uint64 `json:"capacity"`
	Available        uint64 `json:"available"`        // the number compared
	AvailableKernel  uint64 `json:"availableKernel"`  // MemAvailable
	AvailableKubelet uint64 `json:"availableKubelet"` // kubelet's working-set reading
	MinFree          uint64 `json:"minFree"`
	From             string `json:"memoryAvailableFrom"`
	Threshold        uint64 `json:"threshold"`
	Floor            uint64 `json:"floor"`
	Met              bool   `json:"met"`
	EarlyBand        bool   `json:"earlyBand"`
	DirectReclaim    bool   `json:"directReclaim"`
	SwapTotal        uint64 `json:"swapTotal"`
	SwapFree         uint64 `json:"swapFree"`
}

// CandidateReport is one pod as ranking saw it.
type CandidateReport struct {
	inventory.Ref
	Rank int `json:"rank"`
	// KubeletRank is the place in kubelet's own order by the same numbers; 0:
	// kubelet's eviction never takes it.
	KubeletRank int                     `json:"kubeletRank"`
	QoS         inventory.Value[string] `json:"qos"`
	Priority    inventory.Value[int32]  `json:"priority"`
	Request     inventory.Value[int64]  `json:"request"`
	// StorageRequest is the ephemeral-storage request.
	StorageRequest inventory.Value[int64] `json:"storageRequest"`
	Usage          uint64                 `json:"usage"`
	UsageKnown     bool                   `json:"usageKnown"`
	Gain           uint64                 `json:"gain"`
	// For disk and inodes: what only kubelet's deletion of the pod frees, whether
	// the usage is at least what it says, and how old its oldest part is (ns).
	Deletion   uint64        `json:"freedByDeletion,omitempty"`
	Incomplete bool          `json:"usageIncomplete,omitempty"`
	UsageAge   time.Duration `json:"usageAge,omitempty"`
	// InactiveFile and MemoryVolumes are what was taken off: page cache from
	// the usage, files in memory emptyDirs from the gain.
	InactiveFile  uint64 `json:"inactiveFile,omitempty"`
	MemoryVolumes uint64 `json:"memoryVolumes,omitempty"`

	OverRequest bool `json:"overRequest"`
	// Ending: it is being deleted and will soon have given back what it has.
	Ending   bool   `json:"ending,omitempty"`
	Barred   string `json:"barred,omitempty"`
	NoDirect string `json:"noDirectKill,omitempty"`
	Cgroup   string `json:"cgroup,omitempty"`
}

// KillReport says how a kill went.
type KillReport struct {
	Direct    bool          `json:"direct"`
	Intent    time.Duration `json:"intentAfter"` // from the sample, ns
	Sent      time.Duration `json:"sentAfter"`
	Empty     time.Duration `json:"emptyAfter,omitempty"` // no process left
	Settled   time.Duration `json:"settledAfter"`
	Signalled int64         `json:"signalled"`
	Tries     int           `json:"tries"`
	Fallback  bool          `json:"fallback"`
	HoldError string        `json:"holdError,omitempty"`
	KillError string        `json:"killError,omitempty"`
	CRIError  string        `json:"criError,omitempty"`
}

// memoryReport describes a sample under rules.
func memoryReport(s *MemorySample, v *MemoryVerdict, r *Rules) MemoryReport {
	return MemoryReport{
		Capacity: s.Capacity, Available: v.Available, AvailableKernel: s.Kernel, AvailableKubelet: s.Kubelet,
		MinFree: s.MinFree, From: r.From.String(), Threshold: r.Amount, Floor: r.Floor,
		Met: v.Met, EarlyBand: v.Met && v.Available >= r.Floor, DirectReclaim: v.DirectReclaim,
		SwapTotal: s.SwapTotal, SwapFree: s.SwapFree,
	}
}

// inRankOrder returns the indices of the pods as compare orders them, the barred
// ones last.
func inRankOrder(pods []PlanPod, compare func(a, b int) int) []int {
	order := make([]int, len(pods))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if ab, bb := pods[a].Barred != "", pods[b].Barred != ""; ab != bb {
			return firstIf(bb)
		}
		return compare(a, b)
	})
	return order
}

// candidateReports lists the pods of a plan in rank order, the barred ones
// last.
func candidateReports(pods []PlanPod, cands []Candidate, o RankOptions) []CandidateReport {
	order := inRankOrder(pods, func(a, b int) int { return compareMemory(&cands[a], &cands[b], o) })
	kubelet := kubeletRanks(pods, cands)
	out := make([]CandidateReport, 0, len(pods))
	for rank, i := range order {
		p, c := &pods[i], &cands[i]
		out = append(out, CandidateReport{
			Ref: p.Ref, Rank: rank + 1, KubeletRank: kubelet[i], Ending: p.Ending, StorageRequest: p.StorageRequest, QoS: p.QoS, Priority: p.Priority, Request: p.Request,
			Usage: c.Usage, UsageKnown: c.Known, Gain: c.Gain, InactiveFile: p.InactiveFile, MemoryVolumes: p.VolumeBytes, OverRequest: c.OverRequest(),
			Barred: p.Barred, NoDirect: p.NoDirect, Cgroup: p.CgroupPath,
		})
	}
	return out
}
