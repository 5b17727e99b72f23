package eviction

// AsKubelet switches departures from kubelet's decisions off, one by one. The
// zero value has all of them on; nothing in the configuration sets it. It is for
// the comparison with kubelet's own code (test/kubeletdiff) and for the tests
// that show what each departure changes. RankOptions.SmallGainLast,
// Rules.HardGrace and Rules.From are departures with a switch of their own.
type AsKubelet struct {
	// UnmeasuredFirst: a pod whose usage is not known is taken before all others
	// (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go, exceedMemoryRequests);
	// ours is never taken.
	UnmeasuredFirst bool
	// WithinRequest: pods inside their requests can be victims of soft thresholds
	// and above the floor.
	WithinRequest bool
	// FreesNothing: pods whose stop frees less than 1 MiB can be victims.
	FreesNothing bool
	// NoBreakers: kills that did not help, and pressure from outside of all pods,
	// stop nothing.
	NoBreakers bool
	// GraceBelowHalf: HardGrace, and the 2 s of a hard eviction for PIDs, are given
	// below half the threshold as well.
	GraceBelowHalf bool
	// InodesLessRequest: the ephemeral-storage request, which is in bytes, is taken
	// off a pod's count of inodes.
	InodesLessRequest bool
}
