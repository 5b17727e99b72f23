package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// process is one entry of /proc.
type process struct {
	pid, ppid int
	args      []string
}

func (p process) String() string {
	return fmt.Sprintf("process %d: %s", p.pid, strings.Join(p.args, " "))
}

// identity tells the processes of one lab directory from all others.
type identity struct {
	dir    string // absolute
	onDisk string // dir as its file system sees it, for bind mounts and native snapshots
}

func newIdentity(dir string) identity {
	id := identity{dir: dir, onDisk: dir}
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(dir))
	if err != nil || len(mounts) == 0 {
		return id
	}
	// The last one with the longest mount point is what is visible there.
	best := mounts[0]
	for _, m := range mounts {
		if len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	if rest, err := filepath.Rel(best.Mountpoint, dir); err == nil {
		id.onDisk = filepath.Join(best.Root, rest)
	}
	return id
}

// runs is true for what this lab starts (containerd, its shims, runc and ctr,
// kubelet, the API server, etcd): a program of that name with a path below the
// directory in its arguments.
func (id identity) runs(p process) bool {
	if len(p.args) == 0 {
		return false
	}
	switch filepath.Base(p.args[0]) {
	case "containerd", "containerd-shim-runc-v2", "runc", "ctr", "kubelet", "kube-apiserver", "etcd":
		return id.names(p)
	}
	return false
}

// names is true if an argument is a path in the directory.
func (id identity) names(p process) bool {
	return slices.ContainsFunc(p.args, func(arg string) bool {
		if _, value, ok := strings.Cut(arg, "="); ok {
			arg = value
		}
		return below(strings.TrimPrefix(arg, "unix://"), id.dir)
	})
}

// contains is true if the root of the process is a snapshot of this lab: it
// is in one of our containers. Other mounts say nothing: any service with a
// mount namespace of its own has copies of ours.
func (id identity) contains(infos []*mountinfo.Info) bool {
	for _, m := range infos {
		if m.Mountpoint != "/" {
			continue
		}
		if below(m.Root, id.onDisk) {
			return true
		}
		for _, opt := range strings.Split(m.VFSOptions, ",") {
			if dir, ok := strings.CutPrefix(opt, "upperdir="); ok && below(dir, id.dir) {
				return true
			}
		}
	}
	return false
}

func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// find returns the processes that belong to the lab: those that run, those in
// its containers, and whatever these started. Never ourselves.
func (id identity) find() ([]process, error) {
	all, err := readProcesses()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	ours := map[int]bool{}
	for _, p := range all {
		if p.pid != self && (id.runs(p) || id.contains(mountsOf(p.pid))) {
			ours[p.pid] = true
		}
	}
	for more := true; more; { // runc's children before they change root
		more = false
		for _, p := range all {
			if ours[p.ppid] && !ours[p.pid] && p.pid != self {
				ours[p.pid], more = true, true
			}
		}
	}
	return slices.DeleteFunc(all, func(p process) bool { return !ours[p.pid] }), nil
}

func mountsOf(pid int) []*mountinfo.Info {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil // ended, or a kernel thread
	}
	defer func() { _ = f.Close() }() // read only
	infos, err := mountinfo.GetMountsFromReader(f, func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != "/", false
	})
	if err != nil {
		return nil
	}
	return infos
}

// readProcesses lists /proc without zombies and kernel threads.
func readProcesses() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		all = append(all, process{pid: pid, ppid: parsePPid(stat), args: splitArgs(cmdline)})
	}
	return all, nil
}

func splitArgs(cmdline []byte) []string {
	return strings.Split(string(bytes.TrimRight(cmdline, "\x00")), "\x00")
}

// parsePPid returns field 4 of /proc/<pid>/stat, 0 if there is none. The name
// before it may hold spaces and parentheses.
func parsePPid(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	ppid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return ppid
}

// kill ends the lab's processes, again until none appears any more or timeout
// is over.
func (id identity) kill(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		found, err := id.find()
		if err != nil || len(found) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("lab: still there %v after SIGKILL: %v", timeout, found)
		}
		if err := id.killOnce(found, deadline); err != nil {
			return err
		}
	}
}

// killOnce signals the processes found and waits for them, at most a second.
func (id identity) killOnce(found []process, deadline time.Time) error {
	held := map[int]int{} // pid → pidfd
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd) // a pidfd
		}
	}()
	for _, p := range found {
		if fd, err := unix.PidfdOpen(p.pid, 0); err == nil { // else it has ended
			held[p.pid] = fd
		}
	}
	// Look again now: whoever is ours here and takes the signal through the
	// pidfd had this number all the time, so nobody else can be hit.
	still, err := id.find()
	if err != nil {
		return err
	}
	var fds []unix.PollFd
	for _, p := range still {
		fd, ok := held[p.pid]
		if !ok {
			continue // new: next round
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("lab: kill %v: %w", p, err)
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	limit := time.Now().Add(time.Second)
	if deadline.Before(limit) {
		limit = deadline
	}
	for len(fds) > 0 {
		left := time.Until(limit)
		if left <= 0 {
			break
		}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lab: wait for killed processes: %w", err)
		}
		fds = slices.DeleteFunc(fds, func(fd unix.PollFd) bool { return fd.Revents != 0 })
	}
	return nil
}
