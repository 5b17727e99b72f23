package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// sampleTooOld is when the fast half counts as stuck. It samples once a second
// or more often.
const sampleTooOld = 10 * time.Second

// check is one condition of health or readiness.
type check struct {
	name string
	// wrong says what is; empty when nothing is.
	wrong string
}

// healthChecks are what a restart may put right.
func healthChecks(s *eviction.State, now time.Time) []check {
	c := check{name: "sampler"}
	m := &s.Memory
	switch {
	case m.Threshold == 0: // turned off: nothing is sampled
	case m.Samples == 0 && now.Sub(s.Started) > sampleTooOld:
		c.wrong = "no sample of memory since the start"
	case m.Samples > 0 && m.Age > sampleTooOld:
		c.wrong = fmt.Sprintf("the last sample of memory is %s old", m.Age.Round(time.Second))
	}
	return []check{c}
}

// readyChecks are what must be there before anything can be decided.
func readyChecks(s *eviction.State, now time.Time) []check {
	memory, list := check{name: "memory"}, check{name: "inventory"}
	if s.Memory.Threshold > 0 && s.Memory.Samples == 0 {
		memory.wrong = "no sample of memory yet"
	}
	if !s.Inventory.Listed {
		list.wrong = "the runtime has not been listed yet: no pod is known, nothing is killed"
	}
	return append(healthChecks(s, now), memory, list)
}

// handleHealth adds GET /healthz and /readyz to mux: 200, or 503 with the
// checks that failed.
func handleHealth(mux *http.ServeMux, engine Engine, clock func() time.Time) {
	for path, checks := range map[string]func(*eviction.State, time.Time) []check{"/healthz": healthChecks, "/readyz": readyChecks} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			state := engine.State()
			answerChecks(w, strings.TrimPrefix(path, "/"), checks(&state, clock()))
		})
	}
}

// answerChecks writes the outcome in the form of Kubernetes' components.
func answerChecks(w http.ResponseWriter, name string, checks []check) {
	var b strings.Builder
	code, verdict := http.StatusOK, "passed"
	for _, c := range checks {
		if c.wrong == "" {
			fmt.Fprintf(&b, "[+]%s ok\n", c.name)
			continue
		}
		code, verdict = http.StatusServiceUnavailable, "failed"
		fmt.Fprintf(&b, "[-]%s failed: %s\n", c.name, c.wrong)
	}
	fmt.Fprintf(&b, "%s check %s\n", name, verdict)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(b.String())) // who does not wait for the answer does not need it
}
