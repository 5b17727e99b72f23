package handover

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A new program that hangs is given up after 30 s. The old one serves all the
// while, holds stand, and the next one that works is taken.
func TestProgramThatHangsLeavesTheOldOneServing(t *testing.T) {
	if os.Getenv(restartsEnv) == "" {
		t.Skip("takes a minute: `make soak-handover` runs it; TestUpgradeToAProgramThatHangs of cmd waits less")
	}
	for how, program := range map[string]string{
		"at its start": "#!/bin/sh\nexec sleep 600\n",
		"half way":     "#!/bin/sh\necho prepared >&3\nexec sleep 600\n",
		"deaf":         "#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep 1; done\n",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "handOverTimeout: "+handOver.String())
			r.hold()
			proxy := r.start("proxy")
			evictor := r.start("evict")
			cri := r.serving()
			evicts := func() bool { return r.adminPID() == evictor.cmd.Process.Pid }
			eventually(t, "the evictor answers", evicts)
			l := r.load()
			r.installFile([]byte(program))
			begun := time.Now()
			results, code := r.upgrade()
			took := time.Since(begun)
			if code != 1 || len(results) != 2 {
				t.Fatalf("exit %d, %+v", code, results)
			}
			for _, half := range results {
				if !strings.Contains(half.Error, "did not get as far") {
					t.Errorf("%+v", half)
				}
			}
			// 30 s each.
			if t.Logf("given up after %v", took); took < 59*time.Second {
				t.Errorf("given up after %v already", took)
			}
			refused(t, cri)
			eventually(t, "the old evictor goes on", evicts)
			eventually(t, "the program that hung is gone", func() bool { return r.generations() == 2 })
			r.install("v2")
			results, code = r.upgrade()
			if code != 0 || len(results) != 2 || results[0].Old.PID != proxy.cmd.Process.Pid || results[1].Old.PID != evictor.cmd.Process.Pid {
				t.Errorf("afterwards: exit %d, %+v", code, results)
			}
			refused(t, cri)
			l.stop()
			l.none(t)
		})
	}
}
