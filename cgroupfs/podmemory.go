package cgroupfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

func (p *PodCgroup) usageFile() string {
	if p.fs.mode == V2 {
		return "memory.current"
	}
	return "memory.usage_in_bytes"
}

func (p *PodCgroup) limitFile() string {
	if p.fs.mode == V2 {
		return "memory.max"
	}
	return "memory.limit_in_bytes"
}

// Usage is the memory charged to the cgroup and everything below it:
// memory.current or memory.usage_in_bytes. One pread, no allocation unless it
// fails. After the removal of the cgroup it is ErrGone; without the memory
// controller ErrAbsent.
func (p *PodCgroup) Usage() (uint64, error) {
	if err := p.use(); err != nil {
		return 0, err
	}
	defer p.unuse()
	if p.usage == noFd {
		return 0, p.absent(p.usageFile())
	}
	buf := p.scratch.take()
	defer p.scratch.give(buf)
	n, err := readOnce(p.usage, buf[:])
	if err != nil {
		return 0, goneOrBroken(filepath.Join(p.full, p.usageFile()), err)
	}
	if v, ok := parseUint(trimEnd(buf[:n])); ok && v < absurdFrom {
		return v, nil
	}
	// The path is only built when there is something to say about it.
	return parseBytes(filepath.Join(p.full, p.usageFile()), "", buf[:n])
}

// MemoryLimit is the cgroup's own limit. limited is false for "max" (v2) and
// for numbers from 2^62 up (v1 writes its page counter's maximum).
func (p *PodCgroup) MemoryLimit() (limit uint64, limited bool, err error) {
	return p.limitIn(".")
}

// ChildMemoryLimit is the limit of a direct child cgroup, as Children names it.
func (p *PodCgroup) ChildMemoryLimit(child string) (limit uint64, limited bool, err error) {
	if child == "" || child == "." || child == ".." || strings.ContainsRune(child, '/') {
		return 0, false, fmt.Errorf("%s: child %q: %w", p.full, cut(child), errParent)
	}
	return p.limitIn(child)
}

func (p *PodCgroup) limitIn(child string) (limit uint64, limited bool, err error) {
	if err := p.use(); err != nil {
		return 0, false, err
	}
	defer p.unuse()
	name := filepath.Join(child, p.limitFile())
	b, err := p.readBelow(name, make([]byte, smallFile))
	if err != nil {
		return 0, false, err
	}
	return parseLimit(filepath.Join(p.full, name), trimEnd(b))
}

func parseLimit(path string, b []byte) (limit uint64, limited bool, err error) {
	if string(b) == "max" {
		return 0, false, nil
	}
	v, ok := parseUint(b)
	if !ok {
		return 0, false, broken(path, "", b, errNotNumber)
	}
	if v >= absurdFrom {
		return 0, false, nil
	}
	return v, true, nil
}

// readBelow reads a file of the cgroup or of one below it, opened anew: these
// are for calm times, and a descriptor for each would be thousands.
func (p *PodCgroup) readBelow(name string, buf []byte) ([]byte, error) {
	b, err := readFileAt(p.dir, name, buf)
	if err == nil {
		return b, nil
	}
	path := filepath.Join(p.full, name)
	err = absentOrBroken(path, err)
	if errors.Is(err, ErrAbsent) {
		return nil, p.absent(name)
	}
	if isGone(err) {
		return nil, fmt.Errorf("%s: %w", path, ErrGone)
	}
	return nil, err
}
