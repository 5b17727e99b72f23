package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// How many bytes have to be allocated until a threshold is crossed. For one about
// the machine's memory it is enough that a compiler or two beside the test do not
// cross it; only pods of the same kubelet come near one about its pods.
const (
	margin     = 2048 * mi
	podsMargin = 1024 * mi
)

// Sizes of what is allocated. Hogs cross the margin of the machine, or of the pods,
// by themselves. A ballast and a small hog cross the pods' together; the small hog
// fits beside nothing else, so that its hold can end when the ballast has gone.
const (
	bigHogSize   = margin * 7 / 4
	hogSize      = podsMargin * 7 / 4
	ballastSize  = podsMargin * 5 / 8
	smallHogSize = podsMargin * 3 / 4
)

func quantity(n uint64) string { return resource.NewQuantity(int64(n), resource.BinarySI).String() }

func meminfo() (cgroupfs.Meminfo, error) {
	var m cgroupfs.Meminfo
	b, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		err = cgroupfs.ParseMeminfo(b, &m)
	}
	return m, err
}

func (s *stage) meminfo() cgroupfs.Meminfo {
	s.t.Helper()
	m, err := meminfo()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// available is the larger of the two readings, which is what has to be below a
// threshold (memoryAvailableFrom: verified) but for min_free_kbytes.
func available(m cgroupfs.Meminfo) uint64 { return max(m.KernelAvailable(), m.KubeletAvailable()) }

// threshold returns a hard threshold that margin bytes of allocation cross, so that
// pressure is real and shortage is not. It waits until memory of the scenario
// before has come back.
func (s *stage) threshold() uint64 {
	s.t.Helper()
	last := s.meminfo()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		time.Sleep(time.Second)
		now := s.meminfo()
		still := available(now) < available(last)+32*mi
		if last = now; still {
			break
		}
	}
	if last.MemAvailable < 4*margin {
		s.t.Fatalf("needs %d MiB of free memory for hogs that leave enough, has %d", 4*margin/mi, last.MemAvailable/mi)
	}
	return available(last) - margin
}

// podsThreshold is a threshold of allocatableMemory.available that podsMargin bytes in
// pods cross, beside what small pods take. kubelet limits its pods to all of the
// machine's memory here, and nobody else counts: the tests that do not need
// memory.available itself are safe from whatever runs beside them.
func (s *stage) podsThreshold() uint64 {
	s.t.Helper()
	const smallPods = 128 * mi
	if m := s.meminfo(); m.MemAvailable < 4*podsMargin {
		s.t.Fatalf("needs %d MiB of free memory for hogs that leave enough, has %d", 4*podsMargin/mi, m.MemAvailable/mi)
	}
	return s.meminfo().MemTotal - podsMargin - smallPods
}

// podsUse is the memory of kubelet's pods, in bytes.
func (s *stage) podsUse() (uint64, error) {
	cgroup := filepath.Join(s.kubelet.Cgroup, "kubepods")
	b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", cgroup, "memory.usage_in_bytes"))
	if errors.Is(err, os.ErrNotExist) {
		b, err = os.ReadFile(filepath.Join("/sys/fs/cgroup", cgroup, "memory.current"))
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// awaitPodsCrossing returns when the pods use so much that less than the threshold
// is left to them.
func (s *stage) awaitPodsCrossing(threshold uint64) {
	s.t.Helper()
	eventually(s.t, "the pods' threshold is crossed", time.Minute, func() error {
		use, err := s.podsUse()
		if err == nil && s.meminfo().MemTotal-use >= threshold {
			err = fmt.Errorf("the pods use %d MiB", use/mi)
		}
		return err
	})
}

// machineThreshold is one for kubelet, before anything is started.
func machineThreshold(t *testing.T) uint64 {
	t.Helper()
	m, err := meminfo()
	if err != nil {
		t.Fatal(err)
	}
	return m.KubeletAvailable() - margin
}

// awaitCrossing returns when less than the threshold is available.
func (s *stage) awaitCrossing(threshold uint64) {
	s.t.Helper()
	eventually(s.t, "the threshold is crossed", time.Minute, func() error {
		if now := available(s.meminfo()); now >= threshold {
			return fmt.Errorf("%d MiB available, threshold %d", now/mi, threshold/mi)
		}
		return nil
	})
}
