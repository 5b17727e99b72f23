package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// reclaimFile makes the kernel reclaim from a v2 cgroup (kernel 5.19 and
// later).
const reclaimFile = "memory.reclaim"

// Reclaim asks the kernel to take about so many bytes from the cgroup and all
// below it: page cache first, then swap. The call takes as long as the kernel
// does and keeps the calling thread busy. The kernel may take more or less; who
// needs the number measures. ErrReclaimShort: there was not as much to take.
// ErrAbsent: v1, or a kernel before 5.19. ErrGone: the cgroup was removed.
func (p *PodCgroup) Reclaim(bytes uint64) error {
	if err := p.use(); err != nil {
		return err
	}
	defer p.unuse()
	path := filepath.Join(p.full, reclaimFile)
	fd, err := openAt(p.dir, reclaimFile, unix.O_WRONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.absent(reclaimFile)
	case err != nil:
		return goneOrBroken(path, err)
	}
	// Not writeAll: a signal ends the write when part of it was done, and to
	// repeat it would take the whole amount once more.
	_, err = unix.Pwrite(fd, strconv.AppendUint(nil, bytes, 10), 0)
	_ = unix.Close(fd) // a command; nothing can be lost
	return reclaimed(path, err)
}

// reclaimed classifies what a write to memory.reclaim answered.
func reclaimed(path string, err error) error {
	switch {
	case err == nil, errors.Is(err, unix.EINTR):
		return nil
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("%s: %w", path, ErrReclaimShort)
	}
	return goneOrBroken(path, err)
}
