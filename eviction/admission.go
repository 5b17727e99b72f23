package eviction

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// NotAdmitted is a new pod that the proxy refused because the node was under
// pressure.
type NotAdmitted struct {
	Pod       inventory.Ref `json:"pod"`
	Condition string        `json:"condition"` // as kubelet names it: MemoryPressure …
	First     time.Time     `json:"first"`
	Last      time.Time     `json:"last"`
	Times     int           `json:"times"`
}

const (
	// notAdmittedFor is how long a refusal is remembered after the pod last
	// asked; kubelet asks at least every 5 min.
	notAdmittedFor = 10 * time.Minute
	// notAdmittedMost bounds what is remembered.
	notAdmittedMost = 256
)

// waitingPods are the pods that were not admitted and have not come since.
type waitingPods struct {
	mu   sync.Mutex
	pods map[string]NotAdmitted // by UID
}

// add notes one refusal.
func (w *waitingPods) add(pod inventory.Ref, condition string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods == nil {
		w.pods = map[string]NotAdmitted{}
	}
	n, known := w.pods[pod.UID]
	if !known {
		w.forget(at)
		if len(w.pods) >= notAdmittedMost {
			return
		}
		n = NotAdmitted{Pod: pod, First: at}
	}
	n.Condition, n.Last, n.Times = condition, at, n.Times+1
	w.pods[pod.UID] = n
}

// forget drops those that have not asked for long; mu is held.
func (w *waitingPods) forget(now time.Time) {
	for uid, n := range w.pods {
		if now.Sub(n.Last) >= notAdmittedFor {
			delete(w.pods, uid)
		}
	}
}

// list returns those that still wait, oldest first. Who is in the inventory is
// here by now.
func (w *waitingPods) list(now time.Time, snap *inventory.Snapshot) []NotAdmitted {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(now)
	var out []NotAdmitted
	for uid, n := range w.pods {
		if _, here := snap.Pod(uid); here {
			delete(w.pods, uid)
			continue
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b NotAdmitted) int {
		return cmp.Or(a.First.Compare(b.First), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out
}

// NotAdmitted notes that the proxy refused a new pod. What was decided not to
// run is explained like what was decided to be ended.
func (e *Engine) NotAdmitted(pod inventory.Ref, condition string) {
	if pod.UID != "" {
		e.waiting.add(pod, condition, e.clock().UTC())
	}
}

// waitingNow lists the new pods that the proxy keeps waiting.
func (e *Engine) waitingNow() []NotAdmitted { return e.waiting.list(e.clock(), e.store.Snapshot()) }
