package admin

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

// What garbage collection removed in the background is part of an explanation;
// what a threshold had removed is in its decision, and nothing of it is about one
// pod.
func TestExplainTellsOfRemovals(t *testing.T) {
	s := NewServer(Options{Engine: newFixed(), Proxy: goodProxy, Log: quiet(), Removals: func() []gc.Run {
		return []gc.Run{{Why: gc.ForWatermark, Images: 3}, {Why: gc.ForPressure, Images: 2}, {Why: gc.ForCount, Containers: 9}}
	}})
	for path, want := range map[string]int{"/v1/explain": 2, "/v1/explain?pod=default/meek": 0} {
		w := httptest.NewRecorder()
		s.explain(w, httptest.NewRequest("GET", path, nil))
		var x Explanation
		if err := json.Unmarshal(w.Body.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		if len(x.Removals) != want || want > 0 && (x.Removals[0].Images != 3 || x.Removals[1].Containers != 9) {
			t.Errorf("%s: %+v", path, x.Removals)
		}
	}
}
