package proxy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
)

// AdmissionReason is the reason in the ErrorInfo of a new pod's refusal.
const AdmissionReason = "NODE_UNDER_PRESSURE"

// Conditions under which new pods are refused, as kubelet names them.
const (
	MemoryPressure = "MemoryPressure"
	DiskPressure   = "DiskPressure"
	PIDPressure    = "PIDPressure"
)

// Admission is what is asked before a pod that is new to the node gets its first
// sandbox. It takes the place of kubelet's own admission in the seconds until
// the node's condition and taint are known everywhere (bugs.md B40). Its
// functions are called at any time and may change their answers.
type Admission struct {
	// Conditions are the node's pressures; none when they are not known.
	Conditions func() holds.Conditions
	// BestEffort says that a pod with this cgroup parent asked for nothing;
	// false also when that cannot be told.
	BestEffort func(cgroupParent string) bool
	// Protected says that a pod is never refused.
	Protected func(namespace string, labels map[string]string) bool
	// Facts tells what is known of a pod beyond its request, before it is
	// refused; nil: nothing is. What it does not know is zero.
	Facts func(ctx context.Context, uid string) PodFacts
}

// PodFacts are what Kubernetes says of a new pod.
type PodFacts struct {
	// Critical: kubelet admits it whatever the pressure.
	Critical bool
	// The node's taints under pressure that it tolerates.
	ToleratesMemory, ToleratesDisk, ToleratesPID bool
}

// factsPatience bounds the question for a pod's facts.
const factsPatience = time.Second

// listPatience bounds the one question to the runtime. A pod is not kept waiting
// for an answer that may only refuse it.
const listPatience = 2 * time.Second

// seenLimit bounds the UIDs that are remembered; a kubelet has a few hundred
// pods. One that was forgotten costs a question to the runtime.
const seenLimit = 4096

// admission decides on new pods and counts.
type admission struct {
	ask                          *Admission // nil: everybody is admitted
	memory, disk, pid, undecided atomic.Uint64

	mu    sync.Mutex
	seen  map[string]struct{}
	order [seenLimit]string // the UIDs of seen, the oldest at next
	next  int
}

func newAdmission(a *Admission) *admission {
	return &admission{ask: a, seen: make(map[string]struct{})}
}

// let remembers a UID that is through: it is not new any more.
func (a *admission) let(uid string) {
	if a.ask == nil || uid == "" || len(uid) > holds.MaxUID {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.seen[uid]; ok {
		return
	}
	delete(a.seen, a.order[a.next])
	a.order[a.next] = uid
	a.next = (a.next + 1) % seenLimit
	a.seen[uid] = struct{}{}
}

func (a *admission) knows(uid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.seen[uid]
	return ok
}

// pressure returns the condition under which this pod would be refused if it
// were new, empty for none. Memory refuses only pods that asked for nothing:
// the others were promised theirs. A pod that tolerates the condition's taint is
// not refused under it.
func (a *admission) pressure(e *Event, known PodFacts) string {
	c := a.ask.Conditions()
	if !c.Any() || e.Attempt != 0 || e.Pod == nil {
		return ""
	}
	// Static pods, as in kubelet: they are what the node itself runs on.
	if known.Critical || e.ConfigSource != "" && e.ConfigSource != "api" || a.ask.Protected(e.Pod.Namespace, e.Labels) {
		return ""
	}
	switch {
	case c.Memory && !known.ToleratesMemory && a.ask.BestEffort(e.CgroupParent):
		return MemoryPressure
	case c.Disk && !known.ToleratesDisk:
		return DiskPressure
	case c.PID && !known.ToleratesPID:
		return PIDPressure
	}
	return ""
}

// admit returns the refusal of a new pod under pressure. Whatever goes wrong on
// the way to it, the pod is admitted.
func (t *tap) admit(ctx context.Context) error {
	a := t.p.admission
	if a.ask == nil || t.kind != runPodSandbox {
		return nil
	}
	condition := a.pressure(&t.event, PodFacts{})
	if condition == "" || a.knows(t.uid) || t.hadHold() || !t.isNew(ctx) {
		a.let(t.uid)
		return nil
	}
	if a.ask.Facts != nil {
		askCtx, cancel := context.WithTimeout(ctx, factsPatience)
		condition = a.pressure(&t.event, a.ask.Facts(askCtx, t.uid))
		cancel()
		if condition == "" {
			a.let(t.uid)
			return nil
		}
	}
	a.count(condition)
	t.event.Condition = condition
	t.publish(EventAdmissionRefused)
	t.p.opts.Log.WithField("pod", t.event.Pod.Namespace+"/"+t.event.Pod.Name).WithField("uid", t.uid).
		WithField("condition", condition).Info("refused: the pod is new and the node is under pressure")
	return notAdmitted(t.event.Pod, condition)
}

// hadHold: who was evicted here and let go is not new, and its release was
// weighed already.
func (t *tap) hadHold() bool {
	h := t.p.opts.Holds
	return h != nil && len(h.Lookup(t.uid)) > 0
}

// isNew asks the runtime whether the pod ever had a sandbox: it may have been
// let through by an earlier proxy, or before there was one.
func (t *tap) isNew(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	service, _ := splitMethod(t.method)
	req := &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{cri.LabelPodUID: t.uid}}}
	resp := &runtimeapi.ListPodSandboxResponse{}
	if err := t.p.upstream.conn.Invoke(ctx, "/"+service+"/ListPodSandbox", req, resp); err != nil {
		t.p.opts.Log.WithError(err).WithField("uid", t.uid).Debug("it is not known whether the pod is new; it is admitted")
		t.p.admission.undecided.Add(1)
		return false
	}
	for _, s := range resp.GetItems() {
		// Not every runtime filters.
		if s.GetLabels()[cri.LabelPodUID] == t.uid || s.GetMetadata().GetUid() == t.uid {
			return false
		}
	}
	return true
}

func (a *admission) count(condition string) {
	switch condition {
	case MemoryPressure:
		a.memory.Add(1)
	case DiskPressure:
		a.disk.Add(1)
	default:
		a.pid.Add(1)
	}
}

// AdmissionStatus counts the new pods that were refused, by condition. One pod
// counts each time it asks.
type AdmissionStatus struct {
	// Conditions are those in force now.
	Conditions     []string `json:"conditions"`
	MemoryPressure uint64   `json:"memoryPressure"`
	DiskPressure   uint64   `json:"diskPressure"`
	PIDPressure    uint64   `json:"pidPressure"`
	// Undecided were admitted because the runtime did not say whether they are
	// new.
	Undecided uint64 `json:"undecided"`
}

func (a *admission) status() AdmissionStatus {
	s := AdmissionStatus{
		Conditions:     []string{},
		MemoryPressure: a.memory.Load(), DiskPressure: a.disk.Load(), PIDPressure: a.pid.Load(), Undecided: a.undecided.Load(),
	}
	if a.ask == nil {
		return s
	}
	c := a.ask.Conditions()
	for _, x := range []struct {
		on   bool
		name string
	}{{c.Memory, MemoryPressure}, {c.Disk, DiskPressure}, {c.PID, PIDPressure}} {
		if x.on {
			s.Conditions = append(s.Conditions, x.name)
		}
	}
	return s
}

// AdmissionMessage is the text a new pod is refused with. Like RefusalMessage it
// is constant as long as it is refused for the same reason.
func AdmissionMessage(pod PodRef, condition string) string {
	text := fmt.Sprintf("pod %s/%s (uid %s) is new and is not admitted by cri-evictd: the node had condition: [%s]; it is tried again until that is over",
		pod.Namespace, pod.Name, pod.UID, condition)
	return strings.ToValidUTF8(text, "\uFFFD")
}

func notAdmitted(pod *PodRef, condition string) error {
	st := status.New(codes.ResourceExhausted, AdmissionMessage(*pod, condition))
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{
		Reason: AdmissionReason,
		Domain: RefusalDomain,
		Metadata: map[string]string{
			"condition": condition,
			"uid":       strings.ToValidUTF8(pod.UID, "\uFFFD"),
		},
	})
	if err != nil {
		return st.Err() // the code and the text are what counts
	}
	return detailed.Err()
}
