package diskusage

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// Layout of struct linux_dirent64, the same on all 64-bit architectures.
const (
	direntOff    = 8  // s64: where the next entry is
	direntReclen = 16 // u16
	direntName   = 19
)

// errDirent says that the kernel's directory listing made no sense.
var errDirent = errors.New("directory entry is cut off")

// dirent is one entry of a directory.
type dirent struct {
	// name ends with its zero byte, and lies in the buffer it was read from.
	name []byte
	// next is where reading goes on after this entry.
	next int64
}

// text is the name without its end.
func (d *dirent) text() []byte { return d.name[:len(d.name)-1] }

// dots says whether it is the directory itself or its parent.
func (d *dirent) dots() bool {
	t := d.text()
	return string(t) == "." || string(t) == ".."
}

// nextDirent takes the first entry of what getdents64 has written.
func nextDirent(b []byte) (d dirent, rest []byte, err error) {
	if len(b) < direntName {
		return d, nil, errDirent
	}
	length := int(binary.NativeEndian.Uint16(b[direntReclen:]))
	if length <= direntName || length > len(b) {
		return d, nil, errDirent
	}
	end := bytes.IndexByte(b[direntName:length], 0)
	if end <= 0 {
		return d, nil, errDirent
	}
	d.name = b[direntName : direntName+end+1]
	if bytes.IndexByte(d.text(), '/') >= 0 {
		return d, nil, errDirent
	}
	d.next = int64(binary.NativeEndian.Uint64(b[direntOff:]))
	return d, b[length:], nil
}
