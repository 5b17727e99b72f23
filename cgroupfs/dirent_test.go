package cgroupfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func openDir(t testing.TB, path string) int {
	t.Helper()
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // a directory
	return fd
}

// More entries than one system call gives.
func TestChildDirs(t *testing.T) {
	root := t.TempDir()
	var want []string
	for i := range 500 {
		name := fmt.Sprintf("child-%03d-with-a-name-of-some-length", i)
		want = append(want, name)
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, "", root, "a-file")
	if err := os.Symlink(root, filepath.Join(root, "a-link")); err != nil {
		t.Fatal(err)
	}
	got, err := childDirs(openDir(t, root))
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d names, %v, want %d", len(got), err, len(want))
	}
}

func dirent(kind byte, name string) []byte {
	b := make([]byte, direntName, direntName+len(name)+1)
	b[direntType] = kind
	b = append(append(b, name...), 0)
	binary.NativeEndian.PutUint16(b[direntReclen:], uint16(len(b)))
	return b
}

func TestAppendDirsUnknownKind(t *testing.T) {
	root := t.TempDir()
	writeFile(t, "", root, "dir", "file")
	writeFile(t, "", root, "file")
	b := slices.Concat(
		dirent(unix.DT_UNKNOWN, "."), dirent(unix.DT_UNKNOWN, ".."), dirent(unix.DT_UNKNOWN, "dir"),
		dirent(unix.DT_UNKNOWN, "file"), dirent(unix.DT_REG, "dir"), dirent(unix.DT_UNKNOWN, "vanished"),
	)
	got, err := appendDirs(nil, openDir(t, root), b)
	if err != nil || !slices.Equal(got, []string{"dir"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func FuzzAppendDirs(f *testing.F) {
	f.Add(slices.Concat(dirent(unix.DT_DIR, "a"), dirent(unix.DT_REG, "b")))
	f.Add(dirent(unix.DT_DIR, "a")[:direntName])
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		names, err := appendDirs(nil, noFd, b)
		if err != nil && !errors.Is(err, errDirent) {
			t.Error(err)
		}
		if slices.Contains(names, ".") || slices.Contains(names, "..") {
			t.Errorf("%q would walk in a circle", names)
		}
	})
}
