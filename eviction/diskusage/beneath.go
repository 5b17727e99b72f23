package diskusage

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// dirFlags open a directory and nothing else: a FIFO or a device with that name
// is refused without being opened.
const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOATIME

// errMount refuses what lies on another mount.
var errMount = errors.New("another mount")

// opener opens directories below one another.
type opener struct {
	old  bool // the kernel has no openat2 (before 5.6)
	stat unix.Statx_t
}

// trusted opens a directory that is the operator's to choose; symlinks in its
// path are followed.
func (o *opener) trusted(path string) (int, error) {
	return openRetry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	})
}

// child opens a directory in another: no symlink, no mount. name is a single
// one, without a slash.
func (o *opener) child(dir int, name string) (int, error) {
	flags := dirFlags
	for {
		fd, err := o.childWith(dir, name, flags)
		switch {
		case errors.Is(err, unix.ENOSYS) && !o.old:
			o.old = true
		case errors.Is(err, unix.EPERM) && flags&unix.O_NOATIME != 0:
			flags &^= unix.O_NOATIME // it is not ours, and we may not pretend
		case errors.Is(err, unix.EXDEV):
			return -1, errMount
		default:
			return fd, err
		}
	}
}

func (o *opener) childWith(dir int, name string, flags int) (int, error) {
	if !o.old {
		how := unix.OpenHow{
			Flags:   uint64(flags),
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
		}
		return openRetry(func() (int, error) { return unix.Openat2(dir, name, &how) })
	}
	// Opening is what may block on another filesystem, so look first.
	parent, err := statFd(dir, &o.stat)
	if err != nil {
		return -1, err
	}
	in, err := statRaw(dir, append([]byte(name), 0), statFlags, &o.stat)
	if err != nil {
		return -1, err
	}
	if in.dev != parent.dev || in.mount != parent.mount {
		return -1, errMount
	}
	return openRetry(func() (int, error) { return unix.Openat(dir, name, flags, 0) })
}

// below opens a directory by its components below a trusted one.
func (o *opener) below(base string, names []string) (int, error) {
	fd, err := o.trusted(base)
	if err != nil {
		return -1, err
	}
	for _, name := range names {
		child, err := o.child(fd, name)
		shut(fd)
		if err != nil {
			return -1, err
		}
		fd = child
	}
	return fd, nil
}

// parent opens the directory above, if it still is the one with this inode.
func (o *opener) parent(dir int, want uint64) (int, error) {
	fd, err := openRetry(func() (int, error) {
		return unix.Openat(dir, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, err
	}
	if in, err := statFd(fd, &o.stat); err != nil || in.ino != want {
		shut(fd)
		return -1, fs.ErrNotExist
	}
	return fd, nil
}

// vanished says that a name is not (any more) the directory it was: removed,
// or replaced by something else.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ESRCH)
}
