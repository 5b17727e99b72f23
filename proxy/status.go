package proxy

import (
	"sort"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
)

// maxMethods bounds the table of calls: names come from the caller.
const maxMethods = 256

// MethodCount is how many calls of one method ended with one code.
type MethodCount struct {
	Method string `json:"method"`
	Code   string `json:"code"`
	Count  uint64 `json:"count"`
}

// Status is what the proxy knows of itself.
type Status struct {
	Listen         string         `json:"listen"`
	Upstream       UpstreamStatus `json:"upstream"`
	InFlight       int            `json:"inFlight"`
	Calls          []MethodCount  `json:"calls"`
	Refused        uint64         `json:"refused"`       // starts of held pods
	HeldMeanwhile  uint64         `json:"heldMeanwhile"` // successes of pods that became held
	Decorated      uint64         `json:"decorated"`     // answers with a reason added
	Undecodable    uint64         `json:"undecodable"`   // messages passed on without being understood
	Panics         uint64         `json:"panics"`
	Events         uint64         `json:"events"`
	EventsDropped  uint64         `json:"eventsDropped"`
	Subscribers    int            `json:"subscribers"`
	HoldsProblem   string         `json:"holdsProblem,omitempty"`
	DecorateStatus bool           `json:"decorateStatus"`
	// Admission counts new pods that were refused under pressure.
	Admission AdmissionStatus `json:"admission"`
}

// statistics are the proxy's counters.
type statistics struct {
	refused, heldMeanwhile, decorated, undecodable, panics atomic.Uint64

	mu    sync.Mutex
	calls map[methodCode]uint64
	names map[string]struct{}
}

type methodCode struct {
	method string
	code   codes.Code
}

func newStatistics() *statistics {
	return &statistics{calls: make(map[methodCode]uint64), names: make(map[string]struct{})}
}

// count notes the end of a call.
func (s *statistics) count(method string, code codes.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.names[method]; !known {
		if len(s.names) >= maxMethods {
			method = "other"
		}
		s.names[method] = struct{}{}
	}
	s.calls[methodCode{method, code}]++
}

func (s *statistics) methodCounts() []MethodCount {
	s.mu.Lock()
	out := make([]MethodCount, 0, len(s.calls))
	for k, n := range s.calls {
		out = append(out, MethodCount{Method: k.method, Code: k.code.String(), Count: n})
	}
	s.mu.Unlock()
	sort.Slice(out, func(i, j int) bool {
		if out[i].Method != out[j].Method {
			return out[i].Method < out[j].Method
		}
		return out[i].Code < out[j].Code
	})
	return out
}
