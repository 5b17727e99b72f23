package eviction

import "time"

// Settings are the engine's, resolved for this machine. A value is never
// changed once the engine has it: Reload replaces the whole.
type Settings struct {
	// Rules are those of the hard memory.available threshold.
	Rules Rules
	// Allocatable are those of the hard allocatableMemory.available threshold;
	// Amount 0: off.
	Allocatable Rules
	// Soft are the soft thresholds of memory.
	Soft []SoftThreshold
	// Slow are the thresholds of disk, inodes and PIDs, hard and soft. Those of
	// containerfs are never a user's (Layout.containerSource).
	Slow       []SlowThreshold
	Protection Protection
	Transition time.Duration // evictionPressureTransitionPeriod
	// HoldMaximum is when a hold ends whatever the pressure.
	HoldMaximum time.Duration
	// MaxPodGrace is evictionMaxPodGracePeriod: the longest grace a soft
	// eviction gives; 0 leaves none but the least of 2 s.
	MaxPodGrace time.Duration
	// HardGrace is hardMemoryGrace: what a hard memory eviction gives before
	// SIGKILL; 0 kills at once.
	HardGrace time.Duration
	// KillBudget is how many pods a signal may cost per hour before it only
	// observes; 0: no limit. Below the floor it does not apply.
	KillBudget int
	// KubeletConfigured: kubelet's own configuration is to be read, which was
	// done last at KubeletReadAt; zero when it could not be.
	KubeletConfigured bool
	KubeletReadAt     time.Time
}

// SoftThreshold is one soft threshold: it must be met for Grace without a break
// before a pod is evicted for it.
type SoftThreshold struct {
	Signal Signal
	// Amount and MinReclaim in the signal's unit.
	Amount, MinReclaim uint64
	Grace              time.Duration
}

// settings returns those in force: what was configured, and what a pause makes
// of it.
func (e *Engine) settings() *Settings { return e.set.Load() }
