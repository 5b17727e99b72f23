package admin

import (
	"fmt"
	"strings"
)

// metricPrefix begins every name (design §12).
const metricPrefix = "cri_evictd_"

// The types of a family.
const (
	gauge     = "gauge"
	counter   = "counter"
	histogram = "histogram"
)

// Family is one metric: its name without the prefix, what it means and which
// labels it has. No label ever carries the name of a pod, so that the number of
// series does not depend on what runs on the node.
type Family struct {
	Name, Type string
	Labels     []string
	Help       string
}

// Families lists every metric there is, in the order of docs/metrics.md.
func Families() []Family {
	return []Family{
		{"build_info", gauge, []string{"version", "goversion"}, "Always 1; the labels say which version runs and which Go built it."},
		{"start_time_seconds", gauge, nil, "When the evictor started, in seconds since the epoch."},
		{"enforcing", gauge, nil, "1 in mode enforce, 0 while decisions are only reported."},
		{"paused", gauge, nil, "1 while a pause by hand (cri-evictd pause) keeps pods from being evicted."},
		{"condition", gauge, []string{"condition"}, "1 while the proxy is told that the node is under this pressure, so that new pods are kept out."},
		{"degraded_parts", gauge, nil, "How many parts run with less than they asked for, such as a thread without SCHED_FIFO."},
		{"pods", gauge, nil, "Pods the evictor knows of."},
		{"pods_not_admitted", gauge, nil, "New pods that wait for the pressure to be over."},

		{"signal_capacity_bytes", gauge, []string{"signal"}, "What there is of the signal's resource at most."},
		{"signal_available_bytes", gauge, []string{"signal", "reading"}, "What is available: reading kernel and kubelet are the two ways to tell of memory, compared is the number held against the threshold."},
		{"signal_threshold_bytes", gauge, []string{"signal", "kind"}, "The threshold, hard or soft; 0 when it is off."},
		{"signal_capacity_items", gauge, []string{"signal"}, "The same for inodes and PIDs."},
		{"signal_available_items", gauge, []string{"signal", "reading"}, "The same for inodes and PIDs; compared is the only reading."},
		{"signal_threshold_items", gauge, []string{"signal", "kind"}, "The same for inodes and PIDs."},
		{"signal_floor_bytes", gauge, []string{"signal"}, "Between floor and threshold only pods above their request can be victims."},
		{"signal_met", gauge, []string{"signal", "kind"}, "1 while available is below the threshold."},
		{"signal_time_to_threshold_seconds", gauge, []string{"signal"}, "When the hard threshold is reached at the present rate; 0 when it is, +Inf while available is not shrinking."},
		{"signal_armed", gauge, []string{"signal"}, "0 while the threshold was met when it was loaded and has not been clear since: nothing is evicted for it."},
		{"signal_breaches_total", counter, []string{"signal"}, "How often the hard threshold came to be met."},

		{"signal_breaker_open", gauge, []string{"signal", "breaker"}, "1 while the breaker keeps pods from being taken: cascade (kills did not help), outsidePressure (not the pods' memory), budgetSpent (killBudget)."},

		{"decisions_total", counter, []string{"signal", "kind", "outcome", "reason"}, "Decisions by outcome. For outcome noVictim the reason says why nobody was taken, counted once per breach and reason; for the others which rule allowed it."},
		{"kills_total", counter, []string{"signal", "kind", "way", "result"}, "Kills that are over: through the pod's cgroup or the runtime alone (way), verified dead or given up (result)."},
		{"kills_in_progress", gauge, nil, "Kills that are not over."},
		{"kill_stage_duration_seconds", histogram, []string{"signal", "kind", "stage"}, "From the sample that was decided on to each stage of the kill: intent (the hold is visible), sent, empty (no process left), settled (memory back)."},
		{"kill_retries_total", counter, nil, "Kills that were repeated because processes were left."},
		{"kill_fallbacks_total", counter, nil, "Kills that were not sent within 100 ms and were sent process by process instead."},
		{"kill_errors_total", counter, []string{"step"}, "Steps of a kill that failed: writing the hold, the direct kill, or telling the runtime."},

		{"holds", gauge, []string{"state"}, "Records of the holds file: intent (kill in progress), killed (may not start), released."},
		{"holds_released_total", counter, []string{"reason"}, "Holds that ended, by reason."},

		{"telling_queue", gauge, []string{"state"}, "Evictions that Kubernetes is to be told of: queued, or told and watched for kubelet's overwriting them (verifying). No series of this kind without kubeconfig."},
		{"telling_oldest_seconds", gauge, nil, "How long ago the oldest eviction was decided that Kubernetes is not told of; 0 when there is none."},
		{"telling_up", gauge, nil, "1 when the API server answered last time."},
		{"telling_way", gauge, []string{"way"}, "1 for the way in which Kubernetes is told: as reportMode says or, where that is refused, the next one that is permitted; none when nothing is."},
		{"told_total", counter, []string{"way", "outcome"}, "Evictions whose telling is over, by the way and how it ended: told, withoutReason (kubelet took the reason back because every container ended with 0), ended, deleting, gone, static, withdrawn (the pod may run again), refused, expired, dropped."},
		{"telling_requests_total", counter, []string{"kind"}, "Requests the API server took: about a pod, or for an event."},

		{"gc_removed_total", counter, []string{"kind", "reason"}, "Dead containers, sandboxes and unused images that were removed, by why: pressure (a threshold is met), watermark (imageGCHighThresholdPercent), age (imageMaximumGCAge), count (too many dead containers)."},
		{"gc_failures_total", counter, []string{"kind", "reason"}, "Removals that failed."},
		{"gc_gave_up_total", counter, nil, "How often removing images was ended for a while because it freed nothing."},
		{"gc_images", gauge, []string{"state"}, "Images at the last look, every five minutes: unused ones that may be removed, and needed ones."},

		{"sampler_samples_total", counter, nil, "Samples of memory that were taken."},
		{"sampler_failures_total", counter, nil, "Samples that could not be taken."},
		{"sampler_period_seconds", gauge, nil, "How long the sampler waits for the next sample at most."},

		{"wakeup_source_in_use", gauge, []string{"source"}, "1 while this source of the kernel's events can end the sampler's wait early; none is needed."},
		{"wakeups_total", counter, []string{"source"}, "Waits of the sampler that an event of the kernel ended."},

		{"source_up", gauge, []string{"source"}, "1 when the last try to read the source succeeded."},
		{"source_age_seconds", gauge, []string{"source"}, "How long ago the source was last read or, for the ledger, written, which happens when holds change."},

		{"proxy_up", gauge, nil, "1 when the proxy answered at this scrape. Without a proxy holds are not enforced."},
		{"proxy_calls_total", counter, []string{"service", "method", "code"}, "Calls that ended, by gRPC code. Methods this version does not know are counted as other."},
		{"proxy_calls_in_flight", gauge, nil, "Calls under way."},
		{"proxy_upstream_state", gauge, []string{"state"}, "1 for the state the connection to the runtime is in."},
		{"proxy_refused_total", counter, []string{"reason"}, "Starts of pods that were refused: held ones, and new ones under the node's conditions."},
		{"proxy_admission_undecided_total", counter, nil, "Pods let in under pressure because the runtime did not say whether they are new."},
		{"proxy_held_meanwhile_total", counter, nil, "Starts that succeeded although their pod became held meanwhile; it is killed again."},
		{"proxy_decorated_total", counter, nil, "Status answers that got the reason of an eviction."},
		{"proxy_undecodable_total", counter, nil, "Messages passed on without being understood."},
		{"proxy_panics_total", counter, nil, "Panics caught; please report them."},
		{"proxy_events_dropped_total", counter, nil, "Events the evictor was too slow for; it lists anew."},
		{"proxy_holds_readable", gauge, nil, "0 when the proxy cannot read the holds file: nothing is refused."},
	}
}

// WriteMetricsPage writes docs/metrics.md.
func WriteMetricsPage(w *strings.Builder) {
	w.WriteString(metricsIntro)
	w.WriteString("| name | type | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range Families() {
		labels := "–"
		if len(f.Labels) > 0 {
			labels = "`" + strings.Join(f.Labels, "`, `") + "`"
		}
		fmt.Fprintf(w, "| `%s%s` | %s | %s | %s |\n", metricPrefix, f.Name, f.Type, labels, f.Help)
	}
	w.WriteString(metricsRest)
}
