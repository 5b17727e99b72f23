package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// B32: who the kernel shoots before Guaranteed pods (−997).
func TestB32HostProcesses(t *testing.T) {
	_, r := copyTree(t, "v2-systemd")
	for pid, p := range map[string]struct{ status, adj string }{
		"5000010": {"Name:\tcontainerd\nNSpid:\t5000010\n", "0\n"},
		"5000011": {"Name:\tkubelet\nNSpid:\t5000011\n", "-999\n"},
		"5000012": {"Name:\tcontainerd\n", "-1000\n"}, // a kernel without NSpid
		"5000013": {"Name:\tcontainerd-x\nNSpid:\t5000013\n", "0\n"},
	} {
		writeFile(t, p.status, r.Proc, pid, "status")
		writeFile(t, p.adj, r.Proc, pid, "oom_score_adj")
	}
	writeFile(t, "Name:\tcontainerd\n", r.Proc, "5000014/status") // ends just now
	if err := os.MkdirAll(filepath.Join(r.Proc, "5000015"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, "Name:\tcontainerd\n", r.Proc, "self/status")
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []HostProcess{{5000010, "containerd", 0}, {5000011, "kubelet", -999}, {5000012, "containerd", -1000}}
	// 5000003 is a container of the tree that calls itself kubelet.
	got, err := f.HostProcesses("containerd", "kubelet")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if got, err := f.HostProcesses("crio"); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// One that cannot be understood does not hide the others.
func TestHostProcessesErrors(t *testing.T) {
	_, r := copyTree(t, "v1")
	writeFile(t, "Name:\tkubelet\n", r.Proc, "5000010/status")
	writeFile(t, "much\n", r.Proc, "5000010/oom_score_adj")
	writeFile(t, "Name:\tkubelet\n", r.Proc, "5000011/status")
	writeFile(t, "-999\n", r.Proc, "5000011/oom_score_adj")
	writeFile(t, "nothing\n", r.Proc, "5000012/status")
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.HostProcesses("kubelet")
	var b *BrokenError
	if !errors.As(err, &b) || !slices.Equal(got, []HostProcess{{5000011, "kubelet", -999}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.RemoveAll(r.Proc); err != nil {
		t.Fatal(err)
	}
	if _, err := f.HostProcesses("kubelet"); !errors.As(err, &b) || b.Path != r.Proc {
		t.Errorf("no proc: %v", err)
	}
}

func TestHostProcessesOfThisMachine(t *testing.T) {
	f := &FS{roots: Roots{Proc: "/proc"}}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skipf("needs /proc: %v", err)
	}
	name, inner, err := parseStatus(status)
	if err != nil || inner {
		t.Skipf("%q %v, %v: needs /proc of our own PID namespace", name, inner, err)
	}
	got, err := f.HostProcesses(name)
	if err != nil || !slices.ContainsFunc(got, func(p HostProcess) bool { return p.Pid == os.Getpid() }) {
		t.Errorf("%+v, %v: this process is not there", got, err)
	}
}
