package proxy

import (
	"context"
	"strings"
	"testing"
)

// What a pod tolerates is asked before it is refused, and only then.
func TestTolerationsAreRespected(t *testing.T) {
	for name, tt := range map[string]struct {
		memory, disk, pid bool
		facts             PodFacts
		qos, refused      string
	}{
		"nothing is known":                     {memory: true, qos: "besteffort", refused: MemoryPressure},
		"memory tolerated":                     {memory: true, facts: PodFacts{ToleratesMemory: true}, qos: "besteffort"},
		"another one tolerated":                {memory: true, facts: PodFacts{ToleratesDisk: true, ToleratesPID: true}, qos: "besteffort", refused: MemoryPressure},
		"disk tolerated":                       {disk: true, facts: PodFacts{ToleratesDisk: true}, qos: "burstable"},
		"PIDs tolerated":                       {pid: true, facts: PodFacts{ToleratesPID: true}, qos: "burstable"},
		"memory tolerated, the disk is full":   {memory: true, disk: true, facts: PodFacts{ToleratesMemory: true}, qos: "besteffort", refused: DiskPressure},
		"all three tolerated":                  {memory: true, disk: true, pid: true, facts: PodFacts{ToleratesMemory: true, ToleratesDisk: true, ToleratesPID: true}, qos: "besteffort"},
		"critical":                             {memory: true, disk: true, pid: true, facts: PodFacts{Critical: true}, qos: "besteffort"},
		"not asked: it would not be refused":   {memory: true, facts: PodFacts{Critical: true}, qos: "burstable"},
		"disk and PIDs, only the disk is fine": {disk: true, pid: true, facts: PodFacts{ToleratesDisk: true}, qos: "burstable", refused: PIDPressure},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan string, 10)
			r := admissionRig(t, func(a *Admission) {
				a.Facts = func(ctx context.Context, uid string) PodFacts {
					if _, limited := ctx.Deadline(); !limited {
						t.Error("no limit for the question")
					}
					asked <- uid
					return tt.facts
				}
			})
			r.pressure(tt.memory, tt.disk, tt.pid)
			err := r.runs(newPod("uid-1", tt.qos, nil))
			if tt.refused == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tt.refused != "" {
				checkNotAdmitted(t, err, "uid-1", tt.refused)
			}
			if want := map[bool]int{true: 0, false: 1}[strings.HasPrefix(name, "not asked")]; len(asked) != want {
				t.Errorf("asked %d times, want %d", len(asked), want)
			}
		})
	}
}
