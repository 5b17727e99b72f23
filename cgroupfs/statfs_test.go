package cgroupfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestStatfs(t *testing.T) {
	dir := t.TempDir()
	got, err := Statfs(dir)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if got.Device != uint64(st.Dev) || got.Capacity == 0 || got.Available > got.Free || got.Free > got.Capacity {
		t.Errorf("%+v, device %d", got, st.Dev)
	}
	if _, err := Statfs(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is not there: %v, want ErrNotExist", err)
	}
}

// The amounts are those of f_frsize; some file systems leave it 0.
func TestFilesystemConversion(t *testing.T) {
	for _, c := range []struct {
		name string
		in   unix.Statfs_t
		want Filesystem
	}{
		{"ext4", unix.Statfs_t{Type: 0xef53, Frsize: 4096, Bsize: 4096, Blocks: 100, Bfree: 50, Bavail: 40, Files: 1000, Ffree: 10},
			Filesystem{Device: 7, Type: 0xef53, Capacity: 409600, Free: 204800, Available: 163840, Inodes: 1000, InodesFree: 10}},
		{"f_frsize differs from f_bsize", unix.Statfs_t{Frsize: 512, Bsize: 65536, Blocks: 100, Bfree: 50, Bavail: 40},
			Filesystem{Device: 7, Capacity: 51200, Free: 25600, Available: 20480}},
		{"no f_frsize", unix.Statfs_t{Bsize: 1024, Blocks: 2, Bfree: 1, Bavail: 1}, Filesystem{Device: 7, Capacity: 2048, Free: 1024, Available: 1024}},
		{"absurd", unix.Statfs_t{Frsize: 4096, Blocks: 1 << 63, Bfree: 1, Bavail: 1}, Filesystem{Device: 7, Capacity: 1<<64 - 1, Free: 4096, Available: 4096}},
	} {
		if got := filesystem(7, &c.in); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A file system that hangs costs its own reading and one goroutine, however
// often it is asked for; another one is read meanwhile.
func TestStatfsReaderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		r := NewStatfsReader(2*time.Second, time.Now)
		r.statfs = func(path string) (Filesystem, error) {
			if path == "/hung" {
				calls.Add(1)
				<-release
			}
			return Filesystem{Device: 1}, nil
		}
		begun := time.Now()
		for i := range 5 {
			_, err := r.Read(t.Context(), "/hung")
			if !errors.Is(err, ErrHangs) {
				t.Fatalf("reading %d: %v, want ErrHangs", i, err)
			}
		}
		if took := time.Since(begun); took != 2*time.Second || calls.Load() != 1 {
			t.Errorf("five readings took %s and %d calls, want 2s and 1", took, calls.Load())
		}
		if got, err := r.Read(t.Context(), "/fine"); err != nil || got.Device != 1 || !got.At.Equal(time.Now()) {
			t.Errorf("another path: %+v, %v", got, err)
		}
		close(release)
		synctest.Wait()
		if _, err := r.Read(t.Context(), "/hung"); err != nil {
			t.Errorf("once it answers again: %v", err)
		}
	})
}

// Two that ask at the same time have one answer: the second is not told that the
// file system hangs.
func TestStatfsReaderShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := NewStatfsReader(2*time.Second, time.Now)
		r.statfs = func(string) (Filesystem, error) {
			calls.Add(1)
			time.Sleep(time.Second)
			return Filesystem{Device: 1}, nil
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if got, err := r.Read(t.Context(), "/"); err != nil || got.Device != 1 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		wg.Wait()
		if calls.Load() != 1 {
			t.Errorf("%d calls, want 1", calls.Load())
		}
	})
}
