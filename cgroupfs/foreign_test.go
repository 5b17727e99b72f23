package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

func TestForeignOfTrees(t *testing.T) {
	for _, tree := range trees() {
		f := openTree(t, tree.name)
		for _, tc := range []struct {
			path string
			self int
			want []ForeignProcess
		}{
			{tree.burstable, 1, nil},
			{tree.burstable, 5000002, []ForeignProcess{{5000002, "workload"}}},
			{tree.guaranteed, 1, []ForeignProcess{{5000004, "containerd-shim"}}},
			{tree.bestEffort, 1, nil}, // a container may call itself kubelet
		} {
			got, err := f.Foreign(openPod(t, f, tc.path), tc.self)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%s %s: %v, %v, want %v", tree.name, tc.path, got, err, tc.want)
			}
		}
	}
}

func TestForeignProcesses(t *testing.T) {
	f, r := copyTree(t, "v1")
	const pid = 5000002
	dir := filepath.Join(r.Proc, strconv.Itoa(pid))
	p := openPod(t, f, cgroupfsBurstable)
	for _, tc := range []struct {
		name, status, exe string
		foreign           bool
	}{
		{"runtime", "Name:\tcontainerd\nNSpid:\t5000002\n", "", true},
		{"runtime in a pod's PID namespace", "Name:\tcontainerd\nNSpid:\t5000002\t7\n", "/usr/bin/containerd", false},
		{"kernel without NSpid", "Name:\tcrio\n", "", true},
		{"shim under another name", "Name:\tworker\nNSpid:\t5000002\n", "/usr/bin/containerd-shim-runc-v2", true},
		{"replaced file", "Name:\tworker\nNSpid:\t5000002\n", "/usr/bin/kubelet (deleted)", true},
		{"ordinary program of the host", "Name:\tworker\nNSpid:\t5000002\n", "/usr/bin/worker", false},
		{"name that only begins like one", "Name:\tkubelet-helper\nNSpid:\t5000002\n", "/x/kubelet-helper", false},
		{"ourselves by name", "Name:\tcri-evictd\nNSpid:\t5000002\n", "", true},
	} {
		writeFile(t, tc.status, dir, "status")
		exe := filepath.Join(dir, "exe")
		if err := os.RemoveAll(exe); err != nil {
			t.Fatal(err)
		}
		if tc.exe != "" {
			if err := os.Symlink(tc.exe, exe); err != nil {
				t.Fatal(err)
			}
		}
		got, err := f.Foreign(p, 1)
		if err != nil || (len(got) == 1) != tc.foreign {
			t.Errorf("%s: %v, %v, want %v", tc.name, got, err, tc.foreign)
		}
	}
}

func TestForeignErrors(t *testing.T) {
	f, r := copyTree(t, "v1")
	p := openPod(t, f, cgroupfsBurstable)
	status := filepath.Join(r.Proc, "5000002", "status")
	writeFile(t, "nothing\n", status)
	var b *BrokenError
	if _, err := f.Foreign(p, 1); !errors.As(err, &b) || b.Path != status || b.Field != "Name" {
		t.Errorf("no name: %v", err)
	}
	if err := os.Remove(status); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Foreign(p, 1); err != nil || len(got) != 0 {
		t.Errorf("ended meanwhile: %v, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(r.Cgroup, "memory", cgroupfsBurstable)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Foreign(p, 1); !errors.Is(err, ErrGone) {
		t.Errorf("cgroup gone: %v", err)
	}
}

// The process of this test is a process of the host with a name that means
// nothing.
func TestForeignOfThisMachine(t *testing.T) {
	f := &FS{roots: Roots{Proc: "/proc"}}
	buf := make([]byte, statusBuffer)
	comm, foreign, err := f.foreign(os.Getpid(), buf)
	if err != nil || foreign || comm == "" {
		t.Errorf("%q %v, %v", comm, foreign, err)
	}
}
