package eviction

import (
	"slices"
	"strings"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// compareKubelet orders two candidates as kubelet's rankMemoryPressure would by
// our numbers (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go:
// exceedMemoryRequests, priority, memory): a pod without numbers first, then
// usage over request, lower priority, larger usage less request. A request that
// nobody told counts as 0, as one that is not there does in kubelet. kubelet's
// sort leaves ties in any order; here the UID decides.
func compareKubelet(a, b *Candidate) int {
	if a.Known != b.Known {
		return firstIf(!a.Known)
	}
	if a.Known {
		if ao, bo := a.Usage > a.Request, b.Usage > b.Request; ao != bo {
			return firstIf(ao)
		}
	}
	if a.Priority != b.Priority {
		return firstIf(a.Priority < b.Priority)
	}
	if a.Known {
		if ae, be := int64(a.Usage)-int64(a.Request), int64(b.Usage)-int64(b.Request); ae != be {
			return firstIf(ae > be)
		}
	}
	return strings.Compare(a.UID, b.UID)
}

// kubeletRanks returns each pod's place in kubelet's order, from 1; 0 for those
// that kubelet's eviction never takes: static pods and critical priorities
// (Kubernetes 1.37, pkg/kubelet/types/pod_update.go IsCriticalPod). Our other
// reasons to spare a pod are none of kubelet's.
func kubeletRanks(pods []PlanPod, cands []Candidate) []int {
	return ranksBy(pods, cands, compareKubelet)
}

// kubeletDiskRanks is kubeletRanks for disk, inodes and PIDs.
func kubeletDiskRanks(pods []PlanPod, cands []Candidate, u Unit) []int {
	return ranksBy(pods, cands, func(a, b *Candidate) int { return compareDisk(a, b, u, DiskRank{}) })
}

func ranksBy(pods []PlanPod, cands []Candidate, compare func(a, b *Candidate) int) []int {
	order := make([]int, 0, len(pods))
	for i := range pods {
		if !pods[i].Static && pods[i].Priority.Value < inventory.SystemCriticalPriority {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return compare(&cands[a], &cands[b]) })
	ranks := make([]int, len(pods))
	for rank, i := range order {
		ranks[i] = rank + 1
	}
	return ranks
}
