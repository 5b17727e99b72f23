package cgroupfs

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// eventControl takes the wishes for events of a v1 cgroup.
const eventControl = "cgroup.event_control"

// OpenUsageEvent asks a v1 kernel for an event when the node's memory usage,
// page cache included, passes `at` bytes in either direction. On v2, and where
// the kernel has no cgroup.event_control, it is ErrAbsent.
func (f *FS) OpenUsageEvent(at uint64) (*Event, error) {
	return usageEvent(f.memory, at)
}

// usageEvent is OpenUsageEvent of any v1 memory cgroup. The registration lives
// as long as the eventfd; the two files are only needed to make it.
func usageEvent(dir string, at uint64) (*Event, error) {
	control := filepath.Join(dir, eventControl)
	cfd, err := openAt(unix.AT_FDCWD, control, unix.O_WRONLY)
	if err != nil {
		return nil, notOffered(control, err)
	}
	defer func() { _ = unix.Close(cfd) }() // a command; nothing can be lost
	usage := filepath.Join(dir, "memory.usage_in_bytes")
	ufd, err := openAt(unix.AT_FDCWD, usage, unix.O_RDONLY)
	if err != nil {
		return nil, notOffered(usage, err)
	}
	defer func() { _ = unix.Close(ufd) }() // read only
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	if err := writeAll(cfd, fmt.Appendf(nil, "%d %d %d", efd, ufd, at)); err != nil {
		_ = unix.Close(efd) // nothing was asked for
		return nil, notOffered(control, err)
	}
	return &Event{fd: efd, mask: unix.EPOLLIN, path: usage, detail: fmt.Sprintf("at %d bytes", at)}, nil
}
