package cgroupfs

import (
	"errors"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Populated tells whether any process lives in the cgroup or below it. v2 asks
// the kernel (cgroup.events), v1 looks into cgroup.procs of the whole subtree.
func (p *PodCgroup) Populated() (bool, error) {
	if err := p.use(); err != nil {
		return false, err
	}
	defer p.unuse()
	if p.events != noFd {
		buf := p.scratch.take()
		b, err := readWhole(p.events, buf[:])
		if err != nil {
			p.scratch.give(buf)
			return false, goneOrBroken(p.eventsPath(), err)
		}
		populated, err := parsePopulated(b)
		p.scratch.give(buf)
		if err != nil {
			return false, inFile(p.eventsPath(), err)
		}
		return populated, nil
	}
	populated := false
	err := p.eachCgroup(func(dir int, rel string) error {
		return p.eachPid(dir, rel, func(int) bool {
			populated = true
			return false
		})
	}, func() bool { return populated })
	return populated, err
}

func (p *PodCgroup) eventsPath() string { return filepath.Join(p.full, "cgroup.events") }

// parsePopulated finds the line "populated 0" or "populated 1".
func parsePopulated(b []byte) (bool, error) {
	for len(b) > 0 {
		line, rest, _ := nextLine(b)
		b = rest
		name, value := nextWord(line)
		if string(name) != "populated" {
			continue
		}
		word, tail := nextWord(value)
		switch {
		case string(word) == "0" && isEmpty(tail):
			return false, nil
		case string(word) == "1" && isEmpty(tail):
			return true, nil
		}
		return false, broken("", "populated", value, errNotNumber)
	}
	return false, broken("", "populated", nil, errMissing)
}

// Pids appends the processes of the whole subtree to dst. Processes of another
// PID namespace, which the kernel shows as 0, cannot be named and are left
// out.
func (p *PodCgroup) Pids(dst []int) ([]int, error) {
	if err := p.use(); err != nil {
		return dst, err
	}
	defer p.unuse()
	return p.pids(dst)
}

func (p *PodCgroup) pids(dst []int) ([]int, error) {
	err := p.eachCgroup(func(dir int, rel string) error {
		return p.eachPid(dir, rel, func(pid int) bool {
			dst = append(dst, pid)
			return true
		})
	}, nil)
	return dst, err
}

// Children names the direct child cgroups, sorted: a pod's containers.
func (p *PodCgroup) Children() ([]string, error) {
	if err := p.use(); err != nil {
		return nil, err
	}
	defer p.unuse()
	names, err := childrenAt(p.dir, p.full)
	slices.Sort(names)
	return names, err
}

// eachCgroup visits the cgroup and all below it with one directory open at a
// time, so that a deep tree made by a tenant cannot use up the descriptors.
// Child cgroups that vanish meanwhile are passed over. done ends it early.
func (p *PodCgroup) eachCgroup(visit func(dir int, rel string) error, done func() bool) error {
	todo := []string{"."}
	for len(todo) > 0 {
		rel := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		children, err := p.visitCgroup(rel, visit)
		if err != nil {
			if rel != "." && errors.Is(err, ErrGone) {
				continue
			}
			return err
		}
		if done != nil && done() {
			return nil
		}
		for _, c := range children {
			todo = append(todo, filepath.Join(rel, c))
		}
	}
	return nil
}

func (p *PodCgroup) visitCgroup(rel string, visit func(dir int, rel string) error) ([]string, error) {
	path := filepath.Join(p.full, rel)
	dir, err := openAt(p.dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, goneOrBroken(path, err)
	}
	defer func() { _ = unix.Close(dir) }() // a directory; nothing can be lost
	if err := visit(dir, rel); err != nil {
		return nil, err
	}
	names, err := childDirs(dir)
	if err != nil {
		return nil, goneOrBroken(path, err)
	}
	return names, nil
}

// childrenAt lists through a fresh description of the directory: the offset of
// the kept one is shared by everybody.
func childrenAt(dir int, path string) ([]string, error) {
	fd, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, goneOrBroken(path, err)
	}
	defer func() { _ = unix.Close(fd) }() // a directory; nothing can be lost
	names, err := childDirs(fd)
	if err != nil {
		return nil, goneOrBroken(path, err)
	}
	return names, nil
}

// eachPid reads cgroup.procs of one cgroup. It opens it anew each time: a v1
// kernel answers an open description from the list it made at the first read
// for about a second.
func (p *PodCgroup) eachPid(dir int, rel string, yield func(pid int) bool) error {
	path := filepath.Join(p.full, rel, "cgroup.procs")
	fd, err := openAt(dir, "cgroup.procs", unix.O_RDONLY)
	if err != nil {
		return goneOrBroken(path, err)
	}
	defer func() { _ = unix.Close(fd) }() // read only
	var buf [4096]byte
	scan := pidScanner{}
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			// A threaded v2 cgroup: its processes are listed by its domain,
			// which lies within the pod as well.
			return nil
		case err != nil:
			return goneOrBroken(path, err)
		}
		more, err := scan.feed(buf[:n], yield)
		if err != nil {
			return inFile(path, err)
		}
		if n == 0 || !more {
			return nil
		}
	}
}

// pidScanner takes numbers from text that comes in pieces.
type pidScanner struct {
	pid    int
	digits int
}

// feed takes the next piece; an empty one ends the text. more is false when
// yield wants no more.
func (s *pidScanner) feed(b []byte, yield func(pid int) bool) (more bool, err error) {
	for _, c := range b {
		if c >= '0' && c <= '9' && s.digits < 10 {
			s.pid = s.pid*10 + int(c-'0')
			s.digits++
			continue
		}
		if c != '\n' || s.digits == 0 {
			return false, broken("", "", b, errNotNumber)
		}
		if !s.flush(yield) {
			return false, nil
		}
	}
	if len(b) == 0 && s.digits > 0 {
		return s.flush(yield), nil
	}
	return true, nil
}

func (s *pidScanner) flush(yield func(pid int) bool) bool {
	pid := s.pid
	s.pid, s.digits = 0, 0
	return pid == 0 || yield(pid)
}
