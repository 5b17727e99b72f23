package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// HostProcess is a process of the host and what the kernel's OOM killer adds to
// its score.
type HostProcess struct {
	Pid         int
	Comm        string // its name, as the kernel cuts it at 15 bytes
	OOMScoreAdj int    // −1000 to 1000
}

// HostProcesses finds the processes of these names, kubelet's and the runtime's
// for example, by ascending number. As in Foreign a process in a PID namespace
// below ours does not count: any program in a container can call itself so.
// Those that end meanwhile are left out; what cannot be read is a *BrokenError.
func (f *FS) HostProcesses(names ...string) ([]HostProcess, error) {
	entries, err := os.ReadDir(f.roots.Proc)
	if err != nil {
		return nil, broken(f.roots.Proc, "", nil, reason(err))
	}
	var found []HostProcess
	var failed []error
	buf := make([]byte, statusBuffer)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 0 {
			continue
		}
		p, ok, err := f.hostProcess(pid, names, buf)
		if err != nil {
			failed = append(failed, err)
		}
		if ok {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b HostProcess) int { return a.Pid - b.Pid })
	return found, errors.Join(failed...)
}

func (f *FS) hostProcess(pid int, names []string, buf []byte) (p HostProcess, ok bool, err error) {
	path := filepath.Join(f.roots.Proc, strconv.Itoa(pid), "status")
	b, err := readFileAt(unix.AT_FDCWD, path, buf)
	if err != nil {
		if isGone(err) || errors.Is(err, unix.ESRCH) {
			return p, false, nil
		}
		return p, false, broken(path, "", nil, err)
	}
	name, inner, err := parseStatus(b)
	if err != nil {
		return p, false, inFile(path, err)
	}
	if inner || !slices.Contains(names, name) {
		return p, false, nil
	}
	adj, err := f.OOMScoreAdj(pid)
	if err != nil {
		if errors.Is(err, ErrGone) {
			return p, false, nil
		}
		return p, false, err
	}
	return HostProcess{Pid: pid, Comm: name, OOMScoreAdj: adj}, true, nil
}
