package diskusage

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxMountinfo bounds what is read of /proc/1/mountinfo, in bytes: an overlay's
// line names all its layers.
const maxMountinfo = 16 << 20

// parseOverlays finds the overlays in a mountinfo file (proc(5)): the directory
// that takes the writes, by st_dev of the overlay. Files on an overlay have its
// device and lie on another. Only the mounts of the host are to be asked: what
// is mounted in a container names paths of its own.
func parseOverlays(b []byte) map[uint64]string {
	out := map[uint64]string{}
	for line := range bytes.Lines(b) {
		before, after, ok := bytes.Cut(bytes.TrimRight(line, "\n"), []byte(" - "))
		if !ok {
			continue
		}
		fields := bytes.Fields(before)
		tail := bytes.Fields(after)
		if len(fields) < 3 || len(tail) < 3 || string(tail[0]) != "overlay" {
			continue
		}
		device, ok := deviceNumber(fields[2])
		if !ok {
			continue
		}
		for option := range bytes.SplitSeq(tail[2], []byte{','}) {
			if upper, ok := bytes.CutPrefix(option, []byte("upperdir=")); ok && len(upper) > 0 && upper[0] == '/' {
				out[device] = unescape(upper)
			}
		}
	}
	return out
}

// deviceNumber reads "major:minor".
func deviceNumber(b []byte) (uint64, bool) {
	major, minor, ok := bytes.Cut(b, []byte{':'})
	if !ok {
		return 0, false
	}
	x, err := strconv.ParseUint(string(major), 10, 32)
	if err != nil {
		return 0, false
	}
	y, err := strconv.ParseUint(string(minor), 10, 32)
	if err != nil {
		return 0, false
	}
	return unix.Mkdev(uint32(x), uint32(y)), true
}

// unescape undoes what the kernel writes for blanks and backslashes: \ooo.
func unescape(b []byte) string {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+3 < len(b) {
			if v, err := strconv.ParseUint(string(b[i+1:i+4]), 8, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, b[i])
	}
	return string(out)
}
