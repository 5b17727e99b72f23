// Package admin is the daemon's HTTP/JSON service on a unix socket, and the
// client the command line uses.
package admin

import (
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// Status is what `cri-evictd status` shows. Amounts are bytes, durations
// nanoseconds.
type Status struct {
	Version string         `json:"version"`
	PID     int            `json:"pid"`
	Engine  eviction.State `json:"eviction"`
	Proxy   ProxyStatus    `json:"proxy"`
	Metrics MetricsStatus  `json:"metrics"`
	// Problems are what a person should look at, one sentence each; empty when
	// all is well. What merely runs with less than it asked for is in
	// eviction.degraded.
	Problems []string `json:"problems"`
	// Config is the configuration in force.
	Config ConfigStatus `json:"configuration,omitzero"`
}

// ConfigStatus is the configuration in force.
type ConfigStatus struct {
	Loaded time.Time `json:"loaded"`
	// Failed is what was wrong with a reload at Tried that was not carried out;
	// empty when the last one was.
	Failed []string  `json:"failed,omitempty"`
	Tried  time.Time `json:"tried,omitzero"`
}

// ProxyStatus is the proxy as the evictor sees it.
type ProxyStatus struct {
	Reachable     bool   `json:"reachable"`
	Error         string `json:"error,omitempty"`
	Listen        string `json:"listen,omitempty"`
	Upstream      string `json:"upstream,omitempty"`
	UpstreamState string `json:"upstreamState,omitempty"`
	UpstreamError string `json:"upstreamError,omitempty"`
	Runtime       string `json:"runtime,omitempty"`
	Calls         uint64 `json:"calls"`
	InFlight      int    `json:"inFlight"`
	Refused       uint64 `json:"refused"`
	HeldMeanwhile uint64 `json:"heldMeanwhile"`
	// NotAdmitted are starts of new pods that were refused, by condition;
	// Undecided those that were let in because it was not known whether they are
	// new.
	NotAdmitted   map[string]uint64 `json:"notAdmitted,omitempty"`
	Undecided     uint64            `json:"undecided"`
	Decorated     uint64            `json:"decorated"`
	Undecodable   uint64            `json:"undecodable"`
	Panics        uint64            `json:"panics"`
	EventsDropped uint64            `json:"eventsDropped"`
	HoldsProblem  string            `json:"holdsProblem,omitempty"`
	// Bypassed: calls go past the proxy on purpose.
	Bypassed bool `json:"bypassed,omitempty"`
	// Methods are the calls by method and code.
	Methods []MethodCount `json:"methods,omitempty"`
}

// MethodCount is how many calls of one method ended with one code.
type MethodCount struct {
	Method string `json:"method"` // full name, as the caller had it
	Code   string `json:"code"`
	Count  uint64 `json:"count"`
}

// MetricsStatus is where metrics are served.
type MetricsStatus struct {
	// Address is host:port; empty when metrics are turned off.
	Address string `json:"address,omitempty"`
	// Error is why they are not served now.
	Error string `json:"error,omitempty"`
}

// Hold is one record of the holds file.
type Hold struct {
	ID               uint64        `json:"id"`
	State            string        `json:"state"`
	Pod              inventory.Ref `json:"pod"`
	Signal           string        `json:"signal"`
	Threshold        int64         `json:"threshold"`
	Available        int64         `json:"available"`
	AvailableKubelet int64         `json:"availableKubelet"`
	Usage            int64         `json:"usage"`
	Request          int64         `json:"request"`
	Priority         int32         `json:"priority"`
	Repeat           uint32        `json:"repeat"`
	BackOff          time.Duration `json:"backOff"` // ns
	Decided          time.Time     `json:"decided"`
	KilledAt         time.Time     `json:"killedAt,omitzero"`
	ReleasedAt       time.Time     `json:"releasedAt,omitzero"`
	ReleaseReason    string        `json:"releaseReason,omitempty"`
}

// holdOf converts a record.
func holdOf(r holds.Record) Hold {
	return Hold{
		ID: r.ID, State: r.State.String(), Pod: inventory.Ref{Namespace: r.Namespace, Name: r.Name, UID: r.UID},
		Signal: r.Signal, Threshold: r.Threshold, Available: r.Available, AvailableKubelet: r.AvailableKubelet,
		Usage: r.Usage, Request: r.Request, Priority: r.Priority, Repeat: r.Repeat, BackOff: eviction.BackOff(r.Repeat),
		Decided: r.Decided, KilledAt: r.KilledAt, ReleasedAt: r.ReleasedAt, ReleaseReason: r.ReleaseReason,
	}
}

// Holds is the answer of GET /v1/holds and POST /v1/holds/release.
type Holds struct {
	Holds []Hold `json:"holds"`
}

// ArmResult is the answer of POST /v1/arm.
type ArmResult struct {
	Changed bool `json:"changed"`
}

// LongestPause bounds a pause, which is easily forgotten.
const LongestPause = 24 * time.Hour

// PauseResult is the answer of POST /v1/pause.
type PauseResult struct {
	// PausedUntil is zero when there is no pause.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
}

// Explanation is the answer of GET /v1/explain.
type Explanation struct {
	eviction.Explanation
	Holds []Hold `json:"holds"`
	// Removals are the last passes of garbage collection that no threshold asked
	// for, the newest first; those for a threshold are in its decision. None when a
	// single pod was asked for.
	Removals []gc.Run `json:"removals,omitempty"`
	// Pod is set when a single pod was asked for; Candidates, Decisions and
	// Holds then are about it alone.
	Pod *inventory.Ref `json:"pod,omitempty"`
}

// PodFacts are what the proxy's admission asks of a pod. Of one that is not Known
// the rest is zero.
type PodFacts struct {
	Known bool `json:"known"`
	// Critical: static, or of a priority that kubelet calls critical.
	Critical  bool                  `json:"critical"`
	Tolerates inventory.Tolerations `json:"tolerates"`
}
