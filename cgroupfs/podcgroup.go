package cgroupfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// PodCgroup holds descriptors of one cgroup. They stay with this very cgroup:
// when it is removed and its path made anew, every method says ErrGone. All
// methods may be called at the same time, Close included.
type PodCgroup struct {
	guard
	fs   *FS
	path string // below the hierarchy root
	full string // for messages

	inode  uint64
	dir    int // the directory, O_PATH is not enough to list it
	usage  int // memory.current, memory.usage_in_bytes
	events int // cgroup.events (v2)
	kill   int // cgroup.kill (v2, kernel 5.14 and later)
	state  int // freezer.state (v1)

	scratch  *scratch
	killText []byte      // what cgroup.kill takes, at hand without allocating
	isPod    bool        // the path names a pod; nothing else is ever killed
	watch    *time.Timer // thaws when the kill does not (v1)

	onFrozen    func() // called between freeze and kill; tests only
	onSignalled func() // called after each round of signals; tests only
}

// OpenPod opens the cgroup at a path below the hierarchy root. Any path may be
// given; whether it is a pod's is for ParsePodPath to say. A path that is not
// there is ErrGone.
func (f *FS) OpenPod(p string) (*PodCgroup, error) {
	if !strings.HasPrefix(p, "/") {
		return nil, fmt.Errorf("cgroup path %q: %w", cut(p), errParent)
	}
	p = path.Clean(p)
	pod := f.newCgroup(p)
	if err := pod.open(); err != nil {
		pod.closeAll()
		return nil, err
	}
	return pod, nil
}

// newCgroup is a cgroup with nothing opened yet; p is clean.
func (f *FS) newCgroup(p string) *PodCgroup {
	pod := &PodCgroup{
		fs: f, path: p, full: filepath.Join(f.memory, p),
		scratch: newScratch(), killText: []byte{'1'},
		dir: noFd, usage: noFd, events: noFd, kill: noFd, state: noFd,
	}
	_, pod.isPod = ParsePodPath(p)
	return pod
}

// open opens what reading and killing need.
func (p *PodCgroup) open() error {
	if err := p.openReading(); err != nil {
		return err
	}
	return p.openControl()
}

// openReading opens what readings need, and nothing a kill could go through.
func (p *PodCgroup) openReading() error {
	var err error
	if p.dir, err = openAt(unix.AT_FDCWD, p.full, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return goneOrBroken(p.full, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(p.dir, &st); err != nil {
		return goneOrBroken(p.full, err)
	}
	p.inode = st.Ino
	p.usage, err = p.openOptional(p.usageFile(), unix.O_RDONLY)
	return err
}

// openControl opens what kills, and what tells that it is over.
func (p *PodCgroup) openControl() error {
	if p.fs.v1() {
		return p.openFreezer()
	}
	var err error
	if p.events, err = p.openOptional("cgroup.events", unix.O_RDONLY); err != nil {
		return err
	}
	p.kill, err = p.openOptional("cgroup.kill", unix.O_WRONLY)
	// Without the right to write, reading goes on; a kill will try by pid.
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// openOptional opens a file a kernel may lack; noFd then.
func (p *PodCgroup) openOptional(name string, flags int) (int, error) {
	fd, err := openAt(p.dir, name, flags)
	if err == nil {
		return fd, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return noFd, nil // or the cgroup went away just now: its use will tell
	}
	return noFd, goneOrBroken(filepath.Join(p.full, name), err)
}

// absent tells a file that this cgroup does not have (ErrAbsent) from one that
// is not there because the cgroup went away (ErrGone).
func (p *PodCgroup) absent(name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(p.dir, "cgroup.procs", &st, 0); err != nil && isGone(err) {
		return fmt.Errorf("%s: %w", p.full, ErrGone)
	}
	return fmt.Errorf("%s: %w", filepath.Join(p.full, name), ErrAbsent)
}

// use guards one use of the descriptors; release has to follow.
func (p *PodCgroup) use() error {
	if !p.acquire() {
		return &fs.PathError{Op: "use", Path: p.full, Err: fs.ErrClosed}
	}
	return nil
}

func (p *PodCgroup) unuse() {
	if p.release() {
		p.closeAll()
	}
}

// Close closes the descriptors, or leaves that to a method still running.
func (p *PodCgroup) Close() error {
	last, err := p.shut()
	if err != nil {
		return &fs.PathError{Op: "close", Path: p.full, Err: err}
	}
	if last {
		p.closeAll()
	}
	return nil
}

func (p *PodCgroup) closeAll() {
	if p.watch != nil {
		p.watch.Stop()
	}
	for _, fd := range []int{p.dir, p.usage, p.events, p.kill, p.state} {
		if fd != noFd {
			_ = unix.Close(fd) // kernel files: nothing is buffered
		}
	}
}

// Path is the path below the hierarchy root.
func (p *PodCgroup) Path() string { return p.path }

// Inode identifies this very cgroup; a new one at the same path has another.
func (p *PodCgroup) Inode() uint64 { return p.inode }
