package cgroupfs

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// MemcgCount compares the memory cgroups that the kernel keeps with those that
// can be seen. The rest were removed and live on because something is still
// charged to them; thousands of them make every reading of the hierarchy slow
// and the root's counters wrong.
type MemcgCount struct {
	Kernel      uint64 // cgroups of the memory hierarchy the kernel knows, the root included
	Directories uint64 // directories, the root included
}

// Ratio is how many the kernel keeps for each that can be seen, rounded down; 1
// is healthy.
func (c MemcgCount) Ratio() uint64 { return c.Kernel / max(1, c.Directories) }

// MemcgCount counts by walking all directories of the memory hierarchy: for
// `check`, not for a loop. A kernel that does not tell is ErrAbsent.
func (f *FS) MemcgCount() (MemcgCount, error) {
	kernel, err := f.kernelMemcgs()
	if err != nil {
		return MemcgCount{}, err
	}
	dirs, err := countDirs(f.memory)
	if err != nil {
		return MemcgCount{}, err
	}
	return MemcgCount{Kernel: kernel, Directories: dirs}, nil
}

// kernelMemcgs is num_cgroups of /proc/cgroups; on v2 kernels that no longer
// list the controller there, what cgroup.stat of the root counts.
func (f *FS) kernelMemcgs() (uint64, error) {
	path := filepath.Join(f.roots.Proc, "cgroups")
	n, err := readCounts(path, parseNumCgroups)
	if err == nil || f.v1() || !errors.Is(err, ErrAbsent) {
		return n, err
	}
	return readCounts(filepath.Join(f.memory, "cgroup.stat"), parseDescendants)
}

func readCounts(path string, parse func([]byte) (uint64, error)) (uint64, error) {
	b, err := readFileAt(unix.AT_FDCWD, path, make([]byte, countsBuffer))
	if err != nil {
		return 0, absentOrBroken(path, err)
	}
	n, err := parse(b)
	if err != nil {
		return 0, inFile(path, err)
	}
	return n, nil
}

// countsBuffer is several times what a kernel writes to either file.
const countsBuffer = 4 << 10

// parseNumCgroups finds the line of the memory controller in /proc/cgroups:
// name, hierarchy, num_cgroups, enabled.
func parseNumCgroups(b []byte) (uint64, error) {
	for len(b) > 0 {
		line, rest, whole := nextLine(b)
		b = rest
		name, tail := nextWord(line)
		if string(name) != "memory" {
			continue
		}
		if !whole {
			return 0, broken("", "memory", line, errCut)
		}
		_, tail = nextWord(tail)
		count, _ := nextWord(tail)
		n, ok := parseUint(count)
		if !ok {
			return 0, broken("", "memory", line, errNotNumber)
		}
		return n, nil
	}
	return 0, fmt.Errorf("memory: %w", ErrAbsent)
}

// parseDescendants adds up the living and the dying of cgroup.stat, and the root
// itself.
func parseDescendants(b []byte) (uint64, error) {
	n, found := uint64(1), false
	for len(b) > 0 {
		line, rest, whole := nextLine(b)
		b = rest
		name, tail := nextWord(line)
		switch string(name) {
		case "nr_descendants":
			found = true
		case "nr_dying_descendants":
		default:
			continue
		}
		if !whole {
			return 0, broken("", string(name), line, errCut)
		}
		word, _ := nextWord(tail)
		v, ok := parseUint(word)
		if !ok {
			return 0, broken("", string(name), tail, errNotNumber)
		}
		n = satAdd(n, v)
	}
	if !found {
		return 0, fmt.Errorf("nr_descendants: %w", ErrAbsent)
	}
	return n, nil
}

// countDirs counts a directory and all below it. What goes away meanwhile does
// not count.
func countDirs(root string) (uint64, error) {
	n, todo := uint64(0), []string{root}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		fd, err := openAt(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			if isGone(err) && dir != root {
				continue
			}
			return 0, broken(dir, "", nil, err)
		}
		names, err := childDirs(fd)
		_ = unix.Close(fd) // a directory; nothing can be lost
		if err != nil && !isGone(err) {
			return 0, broken(dir, "", nil, err)
		}
		n++
		for _, name := range names {
			todo = append(todo, filepath.Join(dir, name))
		}
	}
	return n, nil
}
