package diskusage

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls below take names as they lie in the kernel's directory listing,
// ended by a zero byte: the functions of x/sys make two objects of each name,
// and there may be a million.

// inode is what the walker wants to know of one.
type inode struct {
	dev, ino uint64
	mount    uint64 // 0 where the kernel does not tell (before 5.8)
	blocks   uint64 // of 512 bytes
	nlink    uint32
	mode     uint16
}

func (i *inode) isDir() bool     { return i.mode&unix.S_IFMT == unix.S_IFDIR }
func (i *inode) isRegular() bool { return i.mode&unix.S_IFMT == unix.S_IFREG }

// statFlags: never follow, never mount, and never ask a server: of a FUSE
// filesystem it may be the tenant's own process that has to answer.
const statFlags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC

// statRaw asks about the name in a directory; the name ends with a zero byte.
func statRaw(dir int, name []byte, flags int, buf *unix.Statx_t) (inode, error) {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(&name[0])), uintptr(flags),
			unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, uintptr(unsafe.Pointer(buf)), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return inode{}, errno
		}
		return inodeOf(buf), nil
	}
}

// statFd asks about an open file.
func statFd(fd int, buf *unix.Statx_t) (inode, error) {
	return statRaw(fd, []byte{0}, unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, buf)
}

func inodeOf(s *unix.Statx_t) inode {
	i := inode{
		dev: unix.Mkdev(s.Dev_major, s.Dev_minor), ino: s.Ino,
		blocks: s.Blocks, nlink: s.Nlink, mode: s.Mode,
	}
	if s.Mask&unix.STATX_MNT_ID != 0 {
		i.mount = s.Mnt_id
	}
	return i
}

// readlinkRaw reads the link with this name, which ends with a zero byte.
func readlinkRaw(dir int, name, buf []byte) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_READLINKAT, uintptr(dir), uintptr(unsafe.Pointer(&name[0])),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// getdents reads the next part of a directory.
func getdents(dir int, buf []byte) (int, error) {
	for {
		n, err := unix.Getdents(dir, buf)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// openRetry opens without being stopped by a signal.
func openRetry(open func() (int, error)) (int, error) {
	for {
		fd, err := open()
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// shut closes a descriptor that was only read.
func shut(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd) // nothing can be lost
	}
}
