package diskusage

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever the bytes are, the parser ends, stays within them and gives no name
// that leads elsewhere.
func FuzzDirents(f *testing.F) {
	dir := f.TempDir()
	put(f, 0, dir, "one")
	put(f, 0, dir, "two\nlines")
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(f, err)
	defer shut(fd)
	var buf [chunk]byte
	n, err := getdents(fd, buf[:])
	must(f, err)
	f.Add(bytes.Clone(buf[:n]))
	f.Add([]byte{})
	short := bytes.Clone(buf[:n])
	binary.NativeEndian.PutUint16(short[direntReclen:], 0)
	f.Add(short)
	f.Fuzz(func(t *testing.T, b []byte) {
		left := len(b)
		for len(b) > 0 {
			d, rest, err := nextDirent(b)
			if err != nil {
				return
			}
			if len(rest) >= left || len(d.name) < 2 || d.name[len(d.name)-1] != 0 || bytes.ContainsAny(d.text(), "/\x00") {
				t.Fatalf("%q and %d of %d left", d.name, len(rest), left)
			}
			left, b = len(rest), rest
		}
	})
}

func FuzzParseProjects(f *testing.F) {
	f.Add([]byte("1048577:/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v\n# x\n1:/a\n1:/b\n"))
	f.Add([]byte("5:/a\n6:/a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		owner := map[uint32]string{}
		for dir, id := range parseProjects(b) {
			if id == 0 || dir == "" || dir[0] != '/' || owner[id] != "" {
				t.Fatalf("%q %d, also %q", dir, id, owner[id])
			}
			owner[id] = dir
		}
	})
}

func FuzzParseOverlays(f *testing.F) {
	own, err := os.ReadFile("/proc/self/mountinfo")
	must(f, err)
	f.Add(own)
	f.Add([]byte("1 2 0:45 / /run/x\\040y rw - overlay overlay rw,lowerdir=/l,upperdir=/u\\040p,workdir=/w\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, upper := range parseOverlays(b) {
			if upper == "" || upper[0] != '/' {
				t.Fatalf("%q", upper)
			}
		}
	})
}
