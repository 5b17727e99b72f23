package proxy

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/holds"
)

// ErrorInfo of a refusal.
const (
	RefusalReason = "POD_EVICTED"
	RefusalDomain = "cri-evictd.io"
)

// ReasonEvicted is the reason of a container that ended because its pod was
// evicted, as kubelet calls it.
const ReasonEvicted = "Evicted"

// RefusalMessage is the text a held pod's start is refused with. kubelet shows
// it as an event of the pod; it is constant for a hold, without numbers that
// change, so that repeated events are counted and not piled up. It must never
// contain the words that make kubelet retry every second (a network that is
// said not to be ready).
func RefusalMessage(rec holds.Record) string {
	pod := rec.Namespace + "/" + rec.Name
	cause := ""
	if rec.Signal != "" {
		cause = " for " + rec.Signal
	}
	text := fmt.Sprintf("pod %s (uid %s) was evicted%s by cri-evictd and is held until the pressure is over; see 'cri-evictd explain %s' on the node",
		pod, rec.UID, cause, pod)
	return strings.ToValidUTF8(text, "\uFFFD")
}

// refusal is the status a held pod's start is refused with. ResourceExhausted
// is neither a runtime that is away nor an object that is not there.
func refusal(rec holds.Record) error {
	st := status.New(codes.ResourceExhausted, RefusalMessage(rec))
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{
		Reason: RefusalReason,
		Domain: RefusalDomain,
		Metadata: map[string]string{
			"signal":   strings.ToValidUTF8(rec.Signal, "\uFFFD"),
			"uid":      strings.ToValidUTF8(rec.UID, "\uFFFD"),
			"decision": strconv.FormatUint(rec.ID, 10),
		},
	})
	if err != nil {
		return st.Err() // the code and the text are what counts
	}
	return detailed.Err()
}

// StatusMessage explains an eviction in the form of kubelet's own
// (pkg/kubelet/eviction/helpers.go), with the numbers of the decision.
func StatusMessage(rec holds.Record) string {
	name := signalResource(rec.Signal)
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ",
		name, quantity(rec.Threshold), quantity(rec.Available))
	fmt.Fprintf(&b, "Pod %s was using %s, request is %s", rec.Name, quantity(rec.Usage), quantity(rec.Request))
	if rec.Usage > rec.Request {
		fmt.Fprintf(&b, ", has larger consumption of %s", name)
	}
	b.WriteString(". ")
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

// signalResource names the resource behind a signal as kubelet's messages do.
func signalResource(signal string) string {
	switch {
	case strings.HasPrefix(signal, "memory.") || strings.HasPrefix(signal, "allocatableMemory."):
		return "memory"
	case strings.HasPrefix(signal, "pid."):
		return "pids"
	case strings.HasSuffix(signal, ".inodesFree"):
		return "inodes"
	case strings.HasSuffix(signal, "fs.available"):
		return "ephemeral-storage"
	}
	return signal
}

func quantity(bytes int64) string {
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}
