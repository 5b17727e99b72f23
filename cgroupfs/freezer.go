package cgroupfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// thawWithin is when the watch thaws what a kill has frozen, a quarter
	// before the 100 ms that are promised. A frozen v1 process does not die,
	// not even of SIGKILL.
	thawWithin = 75 * time.Millisecond
	// freezeWait is how long a kill waits for the last process to freeze; one
	// stuck in the kernel never does, and is killed all the same.
	freezeWait = 10 * time.Millisecond
	// freezePoll is the time between two looks.
	freezePoll = 200 * time.Microsecond
)

const freezerState = "freezer.state"

// openFreezer takes the v1 freezer of the same path. A cgroup without one, or
// one we may not write to, is killed without freezing.
func (p *PodCgroup) openFreezer() error {
	if p.fs.freezer == "" {
		return nil
	}
	name := filepath.Join(p.fs.freezer, p.path, freezerState)
	fd, err := openAt(unix.AT_FDCWD, name, unix.O_RDWR)
	switch {
	case err == nil:
		p.state = fd
		p.watch = time.AfterFunc(time.Hour, p.thawLate)
		p.watch.Stop()
		return nil
	case isGone(err), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return nil
	}
	return broken(name, "", nil, err)
}

// Freezes tells whether Kill uses the v1 freezer, so that the record of the
// intent can say that a thaw may be due after a crash.
func (p *PodCgroup) Freezes() bool { return p.state != noFd }

// freezeAll freezes and waits a little for it to be complete. From here on
// thawAll is due, whatever the result is; the watch sees to it.
func (p *PodCgroup) freezeAll() error {
	began := time.Now()
	p.watch.Reset(thawWithin)
	if err := writeAll(p.state, []byte("FROZEN")); err != nil {
		return err
	}
	left := thawWithin - time.Since(began)
	if left <= 0 {
		// The write was stuck, and the watch may have thawed before it took
		// effect.
		return p.thawAll()
	}
	p.watch.Reset(left)
	for time.Since(began) < freezeWait {
		var buf [smallFile]byte
		n, err := readOnce(p.state, buf[:])
		if err != nil {
			return err
		}
		if string(bytes.TrimSpace(buf[:n])) == "FROZEN" {
			return nil
		}
		time.Sleep(freezePoll)
	}
	return nil
}

func (p *PodCgroup) thawAll() error {
	return writeAll(p.state, []byte("THAWED"))
}

// thawLate is the watch's work.
func (p *PodCgroup) thawLate() {
	if p.use() != nil {
		return
	}
	defer p.unuse()
	_ = p.thawAll() // the kill thaws and reports as well
}

// thawBelow thaws containers that somebody had paused: their processes carry
// the signal already and must be let go to die.
func (p *PodCgroup) thawBelow() {
	root := filepath.Join(p.fs.freezer, p.path)
	todo := []string{"."}
	for len(todo) > 0 {
		rel := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		dir := filepath.Join(root, rel)
		fd, err := openAt(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue // gone, which is what is wanted
		}
		if rel != "." {
			_ = writeBelow(fd, freezerState, "THAWED") // as good as it gets; the caller verifies
		}
		children, err := childrenAt(fd, dir)
		_ = unix.Close(fd) // a directory; nothing can be lost
		if err != nil {
			continue
		}
		for _, c := range children {
			todo = append(todo, filepath.Join(rel, c))
		}
	}
}

// Thaw ends a freeze of this cgroup: v1 freezer.state THAWED, v2 cgroup.freeze
// 0. Without a freezer it is ErrAbsent.
func (p *PodCgroup) Thaw() error {
	if err := p.use(); err != nil {
		return err
	}
	defer p.unuse()
	if p.fs.v1() {
		if p.state == noFd {
			return p.absent(freezerState)
		}
		if err := p.thawAll(); err != nil {
			return goneOrBroken(filepath.Join(p.fs.freezer, p.path, freezerState), err)
		}
		return nil
	}
	err := writeBelow(p.dir, "cgroup.freeze", "0")
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return p.absent("cgroup.freeze")
	}
	return goneOrBroken(filepath.Join(p.full, "cgroup.freeze"), err)
}

// ThawPath thaws by path what an earlier run may have left frozen. A cgroup or
// a freezer that is not there needs none: nil.
func (f *FS) ThawPath(p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) == "/" {
		return fmt.Errorf("cgroup path %q: %w", cut(p), errParent)
	}
	p = path.Clean(p)
	root, name, text := f.memory, "cgroup.freeze", "0"
	if f.v1() {
		if f.freezer == "" {
			return nil
		}
		root, name, text = f.freezer, freezerState, "THAWED"
	}
	file := filepath.Join(root, p, name)
	if err := writeBelow(unix.AT_FDCWD, file, text); err != nil && !isGone(err) {
		return broken(file, "", nil, err)
	}
	return nil
}

// writeBelow writes a command to a kernel file opened anew.
func writeBelow(dir int, name, text string) error {
	fd, err := openAt(dir, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	err = writeAll(fd, []byte(text))
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return err
}
