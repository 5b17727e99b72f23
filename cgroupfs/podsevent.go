package cgroupfs

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OpenPodsEvent gives the events of memory.events of the cgroup that all pods
// are below: a limit or a protection was hit in it or in one of the pods, or a
// process was killed for it. The kernel tells at most once in 10 ms. Without
// such a cgroup, on v1 and in a checked-in tree it is ErrAbsent.
func (f *FS) OpenPodsEvent() (*Event, error) {
	if !f.live {
		return nil, fmt.Errorf("%s: nobody tells of changes in a plain directory: %w", f.memory, ErrAbsent)
	}
	pods, err := f.OpenPodsMemory()
	if err != nil {
		return nil, err
	}
	defer func() { _ = pods.Close() }() // read only
	return memoryEvents(pods.cgroup)
}

// memoryEvents opens memory.events of a cgroup. It is read once, because the
// kernel takes what nobody has read yet for news.
func memoryEvents(c *PodCgroup) (*Event, error) {
	path := filepath.Join(c.full, "memory.events")
	fd, err := openAt(c.dir, "memory.events", unix.O_RDONLY)
	if err != nil {
		return nil, notOffered(path, err)
	}
	e := &Event{fd: fd, mask: unix.EPOLLPRI, path: path, detail: c.path, reread: true}
	if err := e.Check(); err != nil {
		_ = e.Close() // read only
		return nil, err
	}
	return e, nil
}
