package diskusage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A mount is refused before it is opened: opening may wait for whoever serves it.
func TestChildRefusesMounts(t *testing.T) {
	base := t.TempDir()
	mountTmpfs(t, filepath.Join(base, "mem"))
	bind(t, mkdir(t, base, "other"), mkdir(t, base, "same"))
	for _, old := range []bool{false, true} {
		o := &opener{old: old}
		fd, err := o.trusted(base)
		must(t, err)
		for _, name := range []string{"mem", "same"} {
			if _, err := o.child(fd, name); !errors.Is(err, errMount) {
				t.Errorf("old kernel %v, %s: %v", old, name, err)
			}
		}
		shut(fd)
	}
}

// The directory above counts only as long as it is the one the walk came from.
func TestParentIsTheOneItWas(t *testing.T) {
	base := t.TempDir()
	mkdir(t, base, "a", "b")
	mkdir(t, base, "c")
	o := new(opener)
	a, err := o.trusted(filepath.Join(base, "a"))
	must(t, err)
	defer shut(a)
	in, err := statFd(a, new(unix.Statx_t))
	must(t, err)
	b, err := o.child(a, "b")
	must(t, err)
	defer shut(b)
	fd, err := o.parent(b, in.ino)
	must(t, err)
	shut(fd)
	must(t, os.Rename(filepath.Join(base, "a", "b"), filepath.Join(base, "c", "b")))
	if fd, err := o.parent(b, in.ino); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%d %v", fd, err)
	}
}
