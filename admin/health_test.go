package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

func TestHealth(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*eviction.State)
		healthy bool
		ready   bool
		text    string
	}{
		{"all is well", func(*eviction.State) {}, true, true, ""},
		{"failing for a moment", func(s *eviction.State) { s.Memory.Failing, s.Memory.Age = true, 9*time.Second }, true, true, ""},
		{"sampler stuck", func(s *eviction.State) { s.Memory.Age = 11 * time.Second }, false, false, "[-]sampler failed: the last sample of memory is 11s old"},
		{"just started", func(s *eviction.State) { s.Memory.Samples, s.Started = 0, moment.Add(-10*time.Second) }, true, false, "[-]memory failed: no sample of memory yet"},
		{"never sampled", func(s *eviction.State) { s.Memory.Samples, s.Started = 0, moment.Add(-11*time.Second) }, false, false, "[-]sampler failed: no sample of memory since the start"},
		{"turned off", func(s *eviction.State) {
			s.Memory = eviction.MemoryNow{}
			s.Started = moment.Add(-time.Hour)
		}, true, true, ""},
		{"not listed", func(s *eviction.State) { s.Inventory.Listed = false }, true, false, "[-]inventory failed: the runtime has not been listed yet"},
		{"listing fails later", func(s *eviction.State) { s.Inventory.ListError = "away" }, true, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixed()
			tt.change(&f.state)
			socket := serve(t, f, goodProxy)
			for path, ok := range map[string]bool{"/healthz": tt.healthy, "/readyz": tt.ready} {
				want, verdict := http.StatusOK, "check passed\n"
				if !ok {
					want, verdict = http.StatusServiceUnavailable, "check failed\n"
				}
				code, body := plain(t, socket, path)
				if code != want || !strings.HasSuffix(body, strings.TrimPrefix(path, "/")+" "+verdict) {
					t.Errorf("%s: %d, want %d: %s", path, code, want, body)
				}
				if !ok && !strings.Contains(body, tt.text) {
					t.Errorf("%s: %q, want %q", path, body, tt.text)
				}
			}
		})
	}
}
