package admin

import (
	"testing"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// A pod that was not admitted runs nowhere, and can be explained all the same.
func TestExplainOfAPodThatWasNotAdmitted(t *testing.T) {
	e := newFixed()
	fresh := inventory.Ref{Namespace: "default", Name: "fresh", UID: "u9"}
	e.explain.NotAdmitted = []eviction.NotAdmitted{
		{Pod: inventory.Ref{Namespace: "default", Name: "other", UID: "u8"}, Condition: "DiskPressure", Times: 1, First: moment, Last: moment},
		{Pod: fresh, Condition: "MemoryPressure", Times: 3, First: moment, Last: moment},
	}
	c := client(serve(t, e, goodProxy))
	for _, name := range []string{"default/fresh", "u9"} {
		x, err := c.Explain(t.Context(), name)
		if err != nil || x.Pod == nil || *x.Pod != fresh || len(x.NotAdmitted) != 1 || x.NotAdmitted[0].Times != 3 || x.NotAdmitted[0].Condition != "MemoryPressure" {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
	if x, err := c.Explain(t.Context(), ""); err != nil || len(x.NotAdmitted) != 2 {
		t.Errorf("all: %+v, %v", x.NotAdmitted, err)
	}
	if x, err := c.Explain(t.Context(), meek.UID); err != nil || len(x.NotAdmitted) != 0 {
		t.Errorf("another pod: %+v, %v", x.NotAdmitted, err)
	}
}
