package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The hog of demo and benchmarks has to be as fast as it says. Only the order
// of magnitude is asserted, because others build on the same machine.
func TestAllocRate(t *testing.T) {
	forEachVersion(t, func(t *testing.T, c *Containerd) {
		dir := filepath.Dir(filepath.Dir(c.Socket))
		pod := testPods("/" + filepath.Base(dir))[1]
		pod.LogDirectory = filepath.Join(dir, "logs")
		pod.Containers[0].Args = []string{"alloc", "--total", "400Mi", "--rate", "400Mi"}
		runAll(t, runtimeClient(t, c), []PodSpec{pod})

		done := regexp.MustCompile(`alloc: done, (\d+) bytes in \d+ ms, ([0-9.]+) MiB/s`)
		var match []string
		waitFor(t, "the workload to have its memory", func() bool {
			b, err := os.ReadFile(filepath.Join(pod.LogDirectory, "main/0.log"))
			if err != nil {
				return false
			}
			match = done.FindStringSubmatch(string(b))
			return match != nil
		})
		rate, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("alloc at 400 MiB/s: measured %.1f MiB/s", rate)
		if match[1] != strconv.Itoa(400<<20) || rate < 40 || rate > 600 {
			t.Errorf("alloc: %q; want 400Mi at about 400 MiB/s", match[0])
		}

		// It says so; the kernel must agree, and it must stay.
		processes, err := newIdentity(dir).find()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range processes {
			if strings.Join(p.args, " ") == "/workload alloc --total 400Mi --rate 400Mi" {
				if rss := residentBytes(t, p.pid); rss < 400<<20 || rss > 440<<20 {
					t.Errorf("resident: %d bytes; want 400Mi and a little", rss)
				}
				return
			}
		}
		t.Errorf("the workload has not stayed: %v", processes)
	})
}

func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(labDeadline)
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", labDeadline, what)
		}
		<-tick.C
	}
}
