package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReclaimWritesBytes(t *testing.T) {
	_, r := copyTree(t, "v2-systemd")
	writeFile(t, "", r.Cgroup, systemdBurstable, reclaimFile)
	f, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	p := openPod(t, f, systemdBurstable)
	if err := p.Reclaim(64 * mib); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(r.Cgroup, systemdBurstable, reclaimFile))
	if err != nil || string(b) != "67108864" {
		t.Errorf("%q, %v was written", b, err)
	}
}

func TestReclaimAbsent(t *testing.T) {
	for _, tree := range trees() {
		p := openPod(t, openTree(t, tree.name), tree.burstable)
		if err := p.Reclaim(mib); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: %v, want ErrAbsent", tree.name, err)
		}
	}
	p, err := openTree(t, "v1").OpenPod(cgroupfsBurstable)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Reclaim(mib); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestReclaimAnswers(t *testing.T) {
	for _, tt := range []struct {
		in, want error
	}{
		{nil, nil},
		{unix.EINTR, nil}, // part of it is done; who needs the number measures
		{unix.EAGAIN, ErrReclaimShort},
		{unix.ENODEV, ErrGone},
		{unix.EINVAL, unix.EINVAL},
	} {
		if got := reclaimed("/p", tt.in); tt.want == nil && got != nil || !errors.Is(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.in, got, tt.want)
		}
	}
	if errors.Is(ErrReclaimShort, ErrAbsent) || errors.Is(ErrReclaimShort, ErrGone) {
		t.Error("ErrReclaimShort must not match the others")
	}
}
