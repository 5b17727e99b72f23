package diskusage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Processes lists the processes of a cgroup and of all below it.
type Processes interface {
	// Pids appends to dst. A cgroup that is not there has none.
	Pids(cgroup string, dst []int) ([]int, error)
}

// What a look at a pod's open files may cost (bugs.md B58).
const (
	maxDescriptors = 20000
	maxProcesses   = 4096
)

// openFiles looks for files of a pod that were deleted and are still open.
// Between steps it holds a process number and a descriptor's number.
type openFiles struct {
	proc    string
	cgroups []string
	procs   Processes
	// count says whether files on this device count, and on which device they lie
	// in truth: those of a container's root are on its overlay.
	count func(dev uint64) (real uint64, ok bool)
	// quotas: some volume was counted by quota, which includes its deleted files.
	quotas bool
	links  *links
	buf    *[chunk]byte
	stat   *unix.Statx_t

	after int // processes up to this number are done
	inPid int // the process being looked at, 0 for none
	next  int64
	seen  int // descriptors
	done  int // processes
	found []openSum
	why   string
}

// openSum is what is open and deleted on one device, within one project.
type openSum struct {
	device         uint64
	project        uint32
	blocks, inodes uint64
}

// step looks until stop says so; it reports whether it is over.
func (f *openFiles) step(stop func() bool) (done bool) {
	var pids []int
	for _, c := range f.cgroups {
		var err error
		if pids, err = f.procs.Pids(c, pids); err != nil {
			f.short("the processes of %s cannot be listed: %v", c, err)
		}
	}
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		if pid <= f.after {
			continue
		}
		if f.done >= maxProcesses {
			f.short("more than %d processes", maxProcesses)
			return true
		}
		if f.inPid != pid {
			f.inPid, f.next = pid, 0
		}
		for more := true; more; {
			more = f.descriptors(pid)
			if f.seen >= maxDescriptors {
				f.short("more than %d open files", maxDescriptors)
				return true
			}
			if !more {
				f.after = pid
				f.done++
			}
			if stop() {
				return false
			}
		}
	}
	return true
}

func (f *openFiles) short(format string, args ...any) {
	if f.why == "" {
		f.why = fmt.Sprintf(format, args...)
	}
}

// descriptors looks at the next open files of one process; more says whether it
// has others. The position in /proc/<pid>/fd is made of the descriptor's
// number, so it means the same the next time.
func (f *openFiles) descriptors(pid int) (more bool) {
	path := filepath.Join(f.proc, strconv.Itoa(pid), "fd")
	dir, err := openRetry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) })
	if err != nil {
		f.missed(pid, err)
		return false
	}
	defer shut(dir)
	if _, err := unix.Seek(dir, f.next, 0); err != nil {
		f.missed(pid, err)
		return false
	}
	n, err := getdents(dir, f.buf[:])
	if err != nil || n == 0 {
		f.missed(pid, err)
		return false
	}
	for b := f.buf[:n]; len(b) > 0; {
		var d dirent
		if d, b, err = nextDirent(b); err != nil {
			f.missed(pid, err)
			return false
		}
		f.next = d.next
		if d.dots() {
			continue
		}
		f.seen++
		f.look(dir, pid, &d)
	}
	return true
}

// missed notes a process that cannot be looked into. One that has ended has no
// files.
func (f *openFiles) missed(pid int, err error) {
	if err != nil && !vanished(err) {
		f.short("open files of process %d: %v", pid, err)
	}
}

// deletedMark is what the kernel puts behind the name of a file that has none
// any more. Any file may be called so: it only saves asking about all others.
const deletedMark = " (deleted)"

func (f *openFiles) look(dir, pid int, d *dirent) {
	var name [chunk]byte
	n, err := readlinkRaw(dir, d.name, name[:])
	switch {
	case errors.Is(err, unix.ENAMETOOLONG): // the name is too deep to be shown
	case err != nil:
		f.missed(pid, err)
		return
	case n < len(deletedMark) || string(name[n-len(deletedMark):n]) != deletedMark:
		return
	}
	in, err := statRaw(dir, d.name, unix.AT_NO_AUTOMOUNT|unix.AT_STATX_DONT_SYNC, f.stat)
	if err != nil {
		f.missed(pid, err)
		return
	}
	if in.nlink != 0 || !in.isRegular() {
		return
	}
	device, ok := f.count(in.dev)
	if !ok {
		return
	}
	first, known := f.links.first(in.dev, in.ino)
	if !known {
		f.short("more is open than can be remembered")
	}
	if !first || !known {
		return // what cannot be remembered might be counted many times
	}
	s := openSum{device: device}
	if f.quotas && device == in.dev {
		s.project = f.projectAt(dir, d)
	}
	f.add(s, in.blocks)
}

// projectAt reads the project of an open file. It lies on a device of ours, so
// opening it waits for nobody else.
func (f *openFiles) projectAt(dir int, d *dirent) uint32 {
	fd, err := openRetry(func() (int, error) {
		return unix.Openat(dir, string(d.text()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return 0
	}
	defer shut(fd)
	project, _, _ := projectOf(fd)
	return project
}

func (f *openFiles) add(s openSum, blocks uint64) {
	for i := range f.found {
		if f.found[i].device == s.device && f.found[i].project == s.project {
			f.found[i].blocks += blocks
			f.found[i].inodes++
			return
		}
	}
	s.blocks, s.inodes = blocks, 1
	f.found = append(f.found, s)
}
