package e2e

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// surroundings are what differs between a development machine and the virtual one
// of `make test-vm`, which says so in the environment.
type surroundings struct {
	own      bool          // the machine is there for these tests alone
	slowness time.Duration // how much longer things may take, 1: a real machine
	systemd  bool          // the systemd cgroup driver
	binaries string        // folder of cri-evictd and cri-evictdevictdfault, "": build them
	quiet    time.Duration // how long nothing may happen in the tests of that
}

// here reads the environment:
//
//	CRI_EVICTD_E2E_SLOWNESS       factor for every deadline
//	CRI_EVICTD_E2E_CGROUP_DRIVER  cgroupfs (default) or systemd
//	CRI_EVICTD_E2E_BINARIES       folder with cri-evictd and cri-evictdevictdfault
//	CRI_EVICTD_E2E_QUIET          duration
func here(t *testing.T) surroundings {
	t.Helper()
	s := surroundings{slowness: 1, quiet: 20 * time.Second, binaries: os.Getenv("CRI_EVICTD_E2E_BINARIES")}
	// In the image of test/vm and nowhere else: a test that exhausts memory must
	// not run anywhere by a mistake in the environment.
	_, err := os.Stat("/etc/cri-evictd-vm")
	s.own = err == nil
	if v := os.Getenv("CRI_EVICTD_E2E_SLOWNESS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("CRI_EVICTD_E2E_SLOWNESS=%q: must be a whole number from 1", v)
		}
		s.slowness = time.Duration(n)
	}
	switch v := os.Getenv("CRI_EVICTD_E2E_CGROUP_DRIVER"); v {
	case "", "cgroupfs":
	case "systemd":
		s.systemd = true
	default:
		t.Fatalf("CRI_EVICTD_E2E_CGROUP_DRIVER=%q: must be cgroupfs or systemd", v)
	}
	if v := os.Getenv("CRI_EVICTD_E2E_QUIET"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatalf("CRI_EVICTD_E2E_QUIET: %v", err)
		}
		s.quiet = d
	}
	return s
}

// needMachine skips everywhere but in the virtual machine.
func needMachine(t *testing.T) {
	t.Helper()
	if !here(t).own {
		t.Skip("needs the machine of `make test-vm`: it brings memory to its end")
	}
}
