package eviction

import (
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// Teller tells Kubernetes of evictions. Its methods return at once: none waits
// for a disk or for the API server.
type Teller interface {
	// Evicted takes an eviction whose containers are dead, or that kubelet is to
	// end (Notice.Grace). One with an ID that it has already is ignored, also after
	// a restart.
	Evicted(n Notice)
	// Withdraw ends the telling of a decision whose pod may run again: it would
	// be stopped by it.
	Withdraw(id uint64)
	// ThresholdMet says that a pod is looked for, or would be, because of the
	// signal.
	ThresholdMet(s Signal)
	// Working: an eviction would be told now, and kubelet then unmounts the pod's
	// volumes.
	Working() bool
	// Ending says whether kubelet has begun to end the pod of a decision that it
	// was told of.
	Ending(id uint64) bool
	// Telling is how far the telling of one decision is; false when it is not told
	// or was forgotten.
	Telling(id uint64) (Telling, bool)
	// State is for the reader.
	State() TellingNow
}

// Notice is an eviction that Kubernetes is to be told of. Amounts are in the
// signal's unit. It is kept on disk.
type Notice struct {
	ID   uint64        `json:"id"` // of the hold
	Pod  inventory.Ref `json:"pod"`
	Time time.Time     `json:"time"` // of the decision

	Signal    Signal `json:"signal"`
	Threshold uint64 `json:"threshold"`
	Available uint64 `json:"available"`
	// Usage is valid when UsageKnown, Request when RequestKnown and then exact.
	Usage        uint64 `json:"usage"`
	UsageKnown   bool   `json:"usageKnown"`
	Request      int64  `json:"request"`
	RequestKnown bool   `json:"requestKnown"`
	// Static: kubelet's own pod or the mirror of one; no status of its own.
	Static bool `json:"static,omitempty"`
	// Grace is how long the pod has to end from Time on, when kubelet is to end it;
	// 0 when its containers are dead. In ns.
	Grace time.Duration `json:"grace,omitempty"`
}

// Telling is how far the telling of one eviction is.
type Telling struct {
	// Way is how it was asked for; empty before the first request.
	Way string `json:"way,omitempty"`
	// Outcome is what came of it; empty while it is under way.
	Outcome string `json:"outcome,omitempty"`
	// Requests is how often it was asked for, Asked when last.
	Requests int       `json:"requests"`
	Asked    time.Time `json:"asked,omitzero"`
	// Done is when the outcome was known.
	Done time.Time `json:"done,omitzero"`
	// Event: the pod's event was sent, or refused for good.
	Event bool `json:"event"`
}

// TellingNow is how Kubernetes is told.
type TellingNow struct {
	// Mode is what was configured: status, evict, delete or none.
	Mode string `json:"mode"`
	// Way is what is done; empty while that is not known, none when nothing is
	// permitted.
	Way string `json:"way,omitempty"`
	// Fallback says what is not permitted, and so why Way may not be Mode.
	Fallback string `json:"fallback,omitempty"`
	// Server is the API server's URL, Node the name of this node.
	Server string `json:"server,omitempty"`
	Node   string `json:"node,omitempty"`
	// Reachable: the API server answered last time.
	Reachable bool `json:"reachable"`
	// Since is when Reachable became what it is.
	Since time.Time `json:"since,omitzero"`
	// Problem is why the last request failed, QueueProblem why the queue could not
	// be kept on disk.
	Problem      string `json:"problem,omitempty"`
	QueueProblem string `json:"queueProblem,omitempty"`
	// Queued are the evictions that are not told, Verifying those that are and are
	// watched for kubelet's overwriting them.
	Queued    int `json:"queued"`
	Verifying int `json:"verifying"`
	// OldestAge is how long ago the oldest of Queued was decided, in ns.
	OldestAge time.Duration `json:"oldestAge,omitempty"`
	// Told are the ends that tellings came to since the process started.
	Told []ToldCount `json:"told"`
	// Patches are the requests that changed a pod, Events those for events.
	Patches uint64 `json:"patches"`
	Events  uint64 `json:"events"`
}

// ToldCount is how many evictions were told in one way with one outcome.
type ToldCount struct {
	Way     string `json:"way"`
	Outcome string `json:"outcome"`
	Count   uint64 `json:"count"`
}

// tell hands an eviction over. It is called when no process of the pod is left,
// and again by whoever finds the pod dead later.
func (e *Engine) tell(d *Decision) {
	if e.teller != nil {
		e.teller.Evicted(e.notice(d))
	}
}

// notice is what Kubernetes is told of a decision.
func (e *Engine) notice(d *Decision) Notice {
	pod, c := d.pod(), &d.Candidates[d.Victim]
	n := Notice{
		ID: d.ID, Pod: pod.Ref, Time: d.At.UTC(), Signal: d.Signal, Threshold: d.limit(), Available: d.Verdict.Available,
		Usage: c.Usage, UsageKnown: c.Known, Request: pod.Request.Value, RequestKnown: pod.Request.Exact,
		Static: e.isStatic(pod.UID),
	}
	if d.slow != nil {
		n.Request, n.RequestKnown = int64(min(c.Request, 1<<62)), c.RequestKnown && pod.StorageRequest.Exact
	}
	return n
}

// tellRecord hands over what a previous process may not have told. What the
// teller has, it ignores.
func (e *Engine) tellRecord(r holds.Record) {
	if e.teller == nil {
		return
	}
	e.teller.Evicted(Notice{
		ID: r.ID, Pod: inventory.Ref{Namespace: r.Namespace, Name: r.Name, UID: r.UID}, Time: r.Decided.UTC(),
		Signal: Signal(r.Signal), Threshold: uint64(max(r.Threshold, 0)), Available: uint64(max(r.Available, 0)),
		Usage: uint64(max(r.Usage, 0)), UsageKnown: r.Usage > 0,
		Static: e.isStatic(r.UID),
	})
}

func (e *Engine) isStatic(uid string) bool {
	p, ok := e.store.Snapshot().Pod(uid)
	return ok && p.Static()
}

// withdraw keeps a pod that may run again from being ended by what is told late.
// One that is gone or being deleted does not: its end is still worth telling.
func (e *Engine) withdraw(id uint64, reason string) {
	if e.teller != nil && reason != ReleasedPodGone && reason != ReleasedPodDeleted {
		e.teller.Withdraw(id)
	}
}

// thresholdMet lets the node's event be written.
func (e *Engine) thresholdMet(s Signal) {
	if e.teller != nil {
		e.teller.ThresholdMet(s)
	}
}

// tells says whether kubelet will hear of an eviction.
func (e *Engine) tells() bool { return e.teller != nil && e.teller.Working() }

// withTelling adds to reports how far Kubernetes is told of them.
func (e *Engine) withTelling(reports []Report) []Report {
	if e.teller == nil {
		return reports
	}
	for i := range reports {
		if t, ok := e.teller.Telling(reports[i].ID); ok {
			reports[i].Telling = &t
		}
	}
	return reports
}

// telling is the teller's state; nil without one.
func (e *Engine) telling() *TellingNow {
	if e.teller == nil {
		return nil
	}
	now := e.teller.State()
	return &now
}
