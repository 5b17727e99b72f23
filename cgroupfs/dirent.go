package cgroupfs

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// Layout of struct linux_dirent64, the same on all 64-bit architectures.
const (
	direntReclen = 16 // u16 after the inode and the offset, 8 bytes each
	direntType   = 18
	direntName   = 19
)

// errDirent says that the kernel's directory listing made no sense.
var errDirent = errors.New("directory entry is cut off")

// childDirs names the directories in an open directory that was not read yet.
// A cgroup has some thirty files for each child; os.ReadDir makes two objects
// of each of them, on the way to a kill.
func childDirs(dir int) ([]string, error) {
	var buf [8192]byte
	var names []string
	for {
		n, err := unix.Getdents(dir, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return names, err
		}
		names, err = appendDirs(names, dir, buf[:n])
		if err != nil {
			return names, err
		}
	}
}

func appendDirs(names []string, dir int, b []byte) ([]string, error) {
	for len(b) > 0 {
		if len(b) < direntName {
			return names, errDirent
		}
		length := int(binary.NativeEndian.Uint16(b[direntReclen:]))
		if length < direntName || length > len(b) {
			return names, errDirent
		}
		name, _, _ := bytes.Cut(b[direntName:length], []byte{0})
		kind := b[direntType]
		b = b[length:]
		if kind != unix.DT_DIR && kind != unix.DT_UNKNOWN || string(name) == "." || string(name) == ".." {
			continue
		}
		if kind == unix.DT_UNKNOWN && !isDirAt(dir, string(name)) {
			continue
		}
		names = append(names, string(name))
	}
	return names, nil
}

// isDirAt asks where a file system does not put the kind into the listing.
func isDirAt(dir int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
