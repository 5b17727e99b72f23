package diskusage

import (
	"errors"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

// CgroupProcesses is Processes of a mounted hierarchy.
type CgroupProcesses struct{ FS *cgroupfs.FS }

// Pids implements Processes.
func (c CgroupProcesses) Pids(cgroup string, dst []int) ([]int, error) {
	p, err := c.FS.OpenPod(cgroup)
	if errors.Is(err, cgroupfs.ErrGone) {
		return dst, nil
	}
	if err != nil {
		return dst, err
	}
	defer func() { _ = p.Close() }() // read only; nothing can be lost
	dst, err = p.Pids(dst)
	if errors.Is(err, cgroupfs.ErrGone) {
		return dst, nil
	}
	return dst, err
}
