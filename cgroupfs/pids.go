package cgroupfs

import (
	"bytes"
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// PIDs is how many tasks (processes and threads) the machine has and may have.
type PIDs struct {
	// Max is the smaller of kernel.pid_max and kernel.threads-max.
	Max uint64
	// Tasks is the second number of the fourth field of /proc/loadavg.
	Tasks uint64
}

// Available is Max − Tasks, 0 where the kernel has gone beyond its limit.
func (p PIDs) Available() uint64 { return p.Max - min(p.Max, p.Tasks) }

// PIDs reads the machine's tasks as kubelet does (Kubernetes 1.37,
// pkg/kubelet/stats/pidlimit/pidlimit_linux.go Stats).
func (f *FS) PIDs() (PIDs, error) {
	var out PIDs
	for _, name := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		path := filepath.Join(f.roots.Proc, name)
		line, err := readLine(path)
		if err != nil {
			return PIDs{}, err
		}
		v, ok := parseUint(line)
		switch {
		case !ok:
			return PIDs{}, broken(path, "", line, errNotNumber)
		case v == 0:
			return PIDs{}, broken(path, "", line, errAbsurd)
		}
		if out.Max == 0 || v < out.Max {
			out.Max = v
		}
	}
	path := filepath.Join(f.roots.Proc, "loadavg")
	line, err := readLine(path)
	if err != nil {
		return PIDs{}, err
	}
	tasks, err := loadavgTasks(line)
	if err != nil {
		return PIDs{}, inFile(path, err)
	}
	out.Tasks = tasks
	return out, nil
}

// loadavgTasks reads the tasks of "0.20 0.18 0.12 1/80 11206".
func loadavgTasks(line []byte) (uint64, error) {
	fields := bytes.Fields(line)
	if len(fields) < 4 {
		return 0, broken("", "tasks", line, errMissing)
	}
	_, after, ok := bytes.Cut(fields[3], []byte("/"))
	if !ok {
		return 0, broken("", "tasks", fields[3], errMissing)
	}
	v, ok := parseUint(after)
	switch {
	case !ok:
		return 0, broken("", "tasks", fields[3], errNotNumber)
	case v == 0:
		return 0, broken("", "tasks", fields[3], errAbsurd)
	}
	return v, nil
}

// CgroupPIDs is pids.current of the cgroup at a path below the hierarchy root:
// the tasks of it and all below. It is for calm times: it looks up a path. A
// cgroup that is not there is ErrGone, a kernel without the pids controller
// ErrAbsent.
func (f *FS) CgroupPIDs(path string) (uint64, error) {
	root := f.memory
	if f.v1() {
		root = filepath.Join(f.roots.Cgroup, "pids")
	}
	dir := filepath.Join(root, filepath.Clean("/"+path))
	full := filepath.Join(dir, "pids.current")
	b, err := readFileAt(unix.AT_FDCWD, full, make([]byte, smallFile))
	if err != nil {
		err = absentOrBroken(full, err)
		if there, look := exists(dir); errors.Is(err, ErrAbsent) && look == nil && !there && isDir(root) {
			return 0, goneOrBroken(dir, unix.ENOENT)
		}
		return 0, err
	}
	v, ok := parseUint(trimEnd(b))
	if !ok {
		return 0, broken(full, "", b, errNotNumber)
	}
	return v, nil
}
