package cgroupfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ForeignProcess is a process that must not be killed with a pod.
type ForeignProcess struct {
	Pid  int
	Comm string // its name, as the kernel cuts it at 15 bytes
}

// statusBuffer is several times what a kernel writes to /proc/<pid>/status.
const statusBuffer = 16 << 10

// Foreign reports the processes in the subtree that must never be killed with
// it: the runtime, its shims and monitors, kubelet, dockerd, and self.
//
// A name alone proves nothing: any program in a container can call itself
// "kubelet" and must not become immune that way, and a pod may run a Docker of
// its own. So a named process counts only when it is not in a PID namespace
// below the one /proc shows (NSpid of /proc/<pid>/status has one number):
// services of the host are not, containers are unless they asked for hostPID.
// A kernel without NSpid leaves the name to decide.
//
// A process that cannot be looked at is a *BrokenError; nothing may be killed
// then.
func (f *FS) Foreign(p *PodCgroup, self int) ([]ForeignProcess, error) {
	pids, err := p.Pids(nil)
	if err != nil {
		return nil, err
	}
	var found []ForeignProcess
	buf := make([]byte, statusBuffer)
	for _, pid := range pids {
		comm, foreign, err := f.foreign(pid, buf)
		if err != nil {
			return nil, err
		}
		if foreign || pid == self {
			found = append(found, ForeignProcess{Pid: pid, Comm: comm})
		}
	}
	return found, nil
}

func (f *FS) foreign(pid int, buf []byte) (comm string, foreign bool, err error) {
	dir := filepath.Join(f.roots.Proc, strconv.Itoa(pid))
	path := filepath.Join(dir, "status")
	b, err := readFileAt(unix.AT_FDCWD, path, buf)
	if err != nil {
		if isGone(err) || errors.Is(err, unix.ESRCH) {
			return "", false, nil // it has ended
		}
		return "", false, broken(path, "", nil, err)
	}
	name, inner, err := parseStatus(b)
	if err != nil {
		return "", false, inFile(path, err)
	}
	if inner {
		return name, false, nil
	}
	if isRuntimeName(name) {
		return name, true, nil
	}
	// A program may rename itself; its file says what it is. Kernel threads
	// have none, and without the right to look the name has decided.
	exe, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return name, false, nil
	}
	return name, isRuntimeName(filepath.Base(strings.TrimSuffix(exe, " (deleted)"))), nil
}

// parseStatus takes the name and whether the process lives in a PID namespace
// below the one of this /proc.
func parseStatus(b []byte) (name string, inner bool, err error) {
	found := false
	for len(b) > 0 {
		line, rest, _ := nextLine(b)
		b = rest
		key, value, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue
		}
		switch string(key) {
		case "Name":
			name, found = string(bytes.TrimSpace(value)), true
		case "NSpid":
			inner = len(bytes.Fields(value)) > 1
		}
	}
	if !found {
		return "", false, broken("", "Name", nil, errMissing)
	}
	return name, inner, nil
}

// isRuntimeName knows the programs that keep containers running.
func isRuntimeName(name string) bool {
	switch name {
	case "containerd", "conmon", "conmonrs", "crio", "kubelet", "dockerd", "cri-dockerd", "cri-evictd":
		return true
	}
	return strings.HasPrefix(name, "containerd-shim")
}
