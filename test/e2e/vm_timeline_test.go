package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// timeline notes the kernel's numbers every now and then, and prints them if the
// test failed: what happened while nobody answered.
func timeline(t *testing.T) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan []string)
	go func() {
		var notes []string
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		begun, last := time.Now(), ""
		for {
			select {
			case <-stop:
				done <- notes
				return
			case <-tick.C:
			}
			line := numbers("/proc/meminfo", "MemFree", "MemAvailable", "AnonPages", "Active(file)", "Inactive(file)", "Slab", "SwapFree") +
				numbers("/proc/vmstat", "pgscan_direct", "pgmajfault", "oom_kill")
			if line != last {
				notes = append(notes, fmt.Sprintf("%7.2f s %s", time.Since(begun).Seconds(), line))
				last = line
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		notes := <-done
		if t.Failed() {
			t.Logf("kernel's numbers:\n%s", strings.Join(notes[max(0, len(notes)-400):], "\n"))
		}
	})
}

// cpuTime is what a process has used of the processors, for the log: a sampler that
// takes too much of a slow machine shows here.
func cpuTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err.Error()
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return "unknown"
	}
	return fmt.Sprintf("%s user and %s system ticks of 10 ms", f[11], f[12])
}

// numbers picks lines out of a file of /proc: "key 1 key 2 ".
func numbers(file string, keys ...string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error() + " "
	}
	var out strings.Builder
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(strings.Replace(line, ":", " ", 1))
		for _, key := range keys {
			if len(f) > 1 && f[0] == key {
				fmt.Fprintf(&out, "%s %s ", key, f[1])
			}
		}
	}
	return out.String()
}
