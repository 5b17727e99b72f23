package diskusage

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// root is a directory or file of a pod that is counted.
type root struct {
	kind Kind
	name string // of the volume
	// base is the operator's directory, whose symlinks are followed; below are
	// the components from there, whose are not.
	base  string
	below []string
}

// chunk is how much of a directory is read at once: its subdirectories are
// remembered until they were walked, at each level.
const chunk = 4096

// lookEvery is how many inodes are asked about between looks at the clock.
const lookEvery = 16

// tree is a walk through one root. Between steps it holds names and no
// descriptors.
type tree struct {
	root   root
	opener *opener
	links  *links
	mem    *memory
	quota  func(fd int, path string) (quotaUsage, bool)
	buf    *[chunk]byte
	stat   *unix.Statx_t

	dev, mount uint64
	started    bool
	frames     []frame // from the root down to where the walk is
	sum        sum
	quotaed    *quotaUsage
	entries    uint64
	// why the walk could not see everything; empty when it did.
	why string
	// absent: there is no such root, or it is a mount or a symlink.
	absent bool
}

// frame is a directory on the way to where the walk is.
type frame struct {
	name    string
	ino     uint64
	next    int64  // where reading goes on
	pending []byte // names of subdirectories read and not walked, each ended by 0
	read    bool   // all of it
}

func (f *frame) cost() int { return frameCost + len(f.name) + chunk }

// step walks until stop says so, and at least a little. It reports whether the
// walk is over. No error ends it: what cannot be read is in why.
func (t *tree) step(stop func() bool) (done bool) {
	fd := t.resume()
	defer func() { shut(fd) }()
	for fd >= 0 {
		f := &t.frames[len(t.frames)-1]
		switch {
		case len(f.pending) > 0:
			fd = t.descend(fd, f)
		case f.read:
			fd = t.ascend(fd)
		default:
			t.list(fd, f, stop)
		}
		if fd >= 0 && stop() {
			return false
		}
	}
	t.release()
	return true
}

// release gives the memory of the walk back.
func (t *tree) release() {
	for i := range t.frames {
		t.mem.give(t.frames[i].cost())
	}
	t.frames = nil
}

// resume opens the directory the walk is in; -1 when there is none left.
func (t *tree) resume() int {
	if !t.started {
		t.started = true
		return t.enter()
	}
	if len(t.frames) == 0 {
		return -1
	}
	fd, err := t.opener.below(t.root.base, t.root.below)
	if err != nil {
		t.missed(err)
		return -1
	}
	in, err := statFd(fd, t.stat)
	if err != nil || in.ino != t.frames[0].ino || in.dev != t.dev {
		shut(fd)
		t.missed(err)
		return -1
	}
	return t.reopen(fd)
}

// reopen goes from the root down the frames as far as they are still the same
// directories; what is below a directory that has gone is given up.
func (t *tree) reopen(fd int) int {
	for i := 1; i < len(t.frames); i++ {
		child, err := t.opener.child(fd, t.frames[i].name)
		if err == nil {
			in, statErr := statFd(child, t.stat)
			if statErr == nil && in.ino == t.frames[i].ino && t.ours(&in) {
				shut(fd)
				fd = child
				continue
			}
			shut(child)
		}
		if err != nil && !vanished(err) && !errors.Is(err, errMount) {
			t.missed(err)
		}
		t.cut(i)
		break
	}
	return fd
}

// cut gives up the frames from i on.
func (t *tree) cut(i int) {
	for j := i; j < len(t.frames); j++ {
		t.mem.give(t.frames[j].cost())
	}
	t.frames = t.frames[:i]
}

// ours says whether an inode lies on the root's own mount.
func (t *tree) ours(in *inode) bool { return in.dev == t.dev && in.mount == t.mount }

// enter opens the root for the first time.
func (t *tree) enter() int {
	parts := t.root.below
	last := parts[len(parts)-1]
	above, err := t.opener.below(t.root.base, parts[:len(parts)-1])
	if err != nil {
		t.notThere(err)
		return -1
	}
	defer shut(above)
	in, err := statFd(above, t.stat)
	if err != nil {
		t.notThere(err)
		return -1
	}
	t.dev, t.mount = in.dev, in.mount
	if in, err = statRaw(above, append([]byte(last), 0), statFlags, t.stat); err != nil {
		t.notThere(err)
		return -1
	}
	switch {
	case !t.ours(&in) || in.mode&unix.S_IFMT == unix.S_IFLNK:
		t.absent = true
		return -1
	case !in.isDir():
		t.sum.add(&in, t.links)
		return -1
	}
	fd, err := t.opener.child(above, last)
	if err != nil {
		t.notThere(err)
		return -1
	}
	if in, err = statFd(fd, t.stat); err != nil || !t.ours(&in) {
		shut(fd)
		t.absent = true
		return -1
	}
	if t.quota != nil && t.root.kind == EmptyDir {
		if q, ok := t.quota(fd, t.root.path()); ok {
			t.quotaed = &q
			shut(fd)
			return -1
		}
	}
	t.sum.blocks += in.blocks
	t.sum.inodes++
	if !t.push(last, in.ino) {
		shut(fd)
		return -1
	}
	return fd
}

// notThere tells a root that does not exist from one that cannot be read.
func (t *tree) notThere(err error) {
	if vanished(err) || errors.Is(err, errMount) {
		t.absent = true
		return
	}
	t.missed(err)
}

// missed notes that part of the tree was not seen. What vanished meanwhile is
// not missing.
func (t *tree) missed(err error) {
	if err == nil || vanished(err) || t.why != "" {
		return
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	t.why = fmt.Sprintf("part of it cannot be read: %v", err)
}

// push goes one directory deeper.
func (t *tree) push(name string, ino uint64) bool {
	f := frame{name: name, ino: ino}
	switch {
	case len(t.frames) >= maxDepth:
		t.short("more than %d directories deep", maxDepth)
		return false
	case !t.mem.take(f.cost()):
		t.short("walks of all pods would remember more than %d bytes", t.mem.limit)
		return false
	}
	t.frames = append(t.frames, f)
	return true
}

func (t *tree) short(format string, args ...any) {
	if t.why == "" {
		t.why = fmt.Sprintf(format, args...)
	}
}

// descend goes into the next pending subdirectory, if it still is one.
func (t *tree) descend(fd int, f *frame) int {
	end := bytes.IndexByte(f.pending, 0)
	name := string(f.pending[:end])
	if f.pending = f.pending[end+1:]; len(f.pending) == 0 {
		f.pending = nil
	}
	child, err := t.opener.child(fd, name)
	if err != nil {
		if !errors.Is(err, errMount) {
			t.missed(err)
		}
		return fd
	}
	in, err := statFd(child, t.stat)
	if err != nil || !t.ours(&in) || !t.push(name, in.ino) {
		shut(child)
		return fd
	}
	shut(fd)
	return child
}

// ascend goes back to the directory above; -1 at the end.
func (t *tree) ascend(fd int) int {
	t.cut(len(t.frames) - 1)
	if len(t.frames) == 0 {
		shut(fd)
		return -1
	}
	above, err := t.opener.parent(fd, t.frames[len(t.frames)-1].ino)
	shut(fd)
	if err != nil {
		return t.resume() // it was moved away while we were in it
	}
	return above
}

// list reads the next part of the directory and counts what is in it.
func (t *tree) list(fd int, f *frame, stop func() bool) {
	if _, err := unix.Seek(fd, f.next, 0); err != nil {
		t.missed(err)
		f.read = true
		return
	}
	n, err := getdents(fd, t.buf[:])
	if err != nil || n == 0 {
		t.missed(err)
		f.read = true
		return
	}
	for b := t.buf[:n]; len(b) > 0; {
		d, rest, err := nextDirent(b)
		if err != nil {
			t.missed(err)
			f.read = true
			return
		}
		b, f.next = rest, d.next
		if d.dots() {
			continue
		}
		if t.entries++; t.entries > maxEntries {
			t.short("more than %d files", maxEntries)
			t.cut(1)
			t.frames[0].pending, t.frames[0].read = nil, true
			return
		}
		t.count(fd, f, &d)
		if t.entries%lookEvery == 0 && stop() {
			return
		}
	}
}

// count adds one entry.
func (t *tree) count(fd int, f *frame, d *dirent) {
	in, err := statRaw(fd, d.name, statFlags, t.stat)
	if err != nil {
		t.missed(err)
		return
	}
	if !t.ours(&in) {
		return
	}
	if in.isDir() {
		t.sum.blocks += in.blocks
		t.sum.inodes++
		f.pending = append(f.pending, d.name...)
		return
	}
	t.sum.add(&in, t.links)
}

// part is what was found so far.
func (t *tree) part() (Part, bool) {
	p := Part{Kind: t.root.kind, Name: t.root.name, Device: t.dev, Freed: t.root.kind.freed(), Source: FromWalk, Why: t.why, AtLeast: t.why != ""}
	if t.absent {
		return p, false
	}
	if q := t.quotaed; q != nil {
		p.Source, p.project = FromQuota, q.project
		p.Bytes = Number{Value: q.bytes, Known: true, Exact: true}
		p.Inodes = Number{Value: q.inodes, Known: true, Exact: true}
		return p, true
	}
	if t.sum.inodes == 0 && t.sum.shared == nil && t.why != "" {
		p.AtLeast = false // nothing is known at all
		return p, true
	}
	bytes, inodes, exact := t.sum.total()
	exact = exact && t.why == ""
	p.Bytes = Number{Value: bytes, Known: true, Exact: exact}
	p.Inodes = Number{Value: inodes, Known: true, Exact: exact}
	return p, true
}
