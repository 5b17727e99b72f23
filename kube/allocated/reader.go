package allocated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/kube"
)

// maxSize bounds what is read; kubelet needs about 300 bytes a container.
const maxSize = 16 << 20

// Sink takes what the file says; nil when there is nothing to be had of it.
type Sink interface {
	SetAllocations(pods map[string]kube.Allocation)
}

// Reader follows the file. Its methods may be called from any goroutine.
type Reader struct {
	path  string
	sink  Sink
	clock func() time.Time
	log   logrus.FieldLogger

	seen identity // of the last content judged; Run's alone

	mu     sync.Mutex
	status Status
}

// Status says what there is of the file.
type Status struct {
	Path string `json:"path"`
	// Present: the file is there and was understood.
	Present bool `json:"present"`
	Pods    int  `json:"pods"`
	// Changed is when its content was last taken over.
	Changed time.Time `json:"changed,omitzero"`
	// Looked is when the file was last seen to be what was taken over.
	Looked time.Time `json:"looked,omitzero"`
	// Problem is why a file that is there is not used.
	Problem string `json:"problem,omitempty"`
}

// identity tells one content from another: kubelet writes a new file and renames
// it.
type identity struct {
	inode       uint64
	size        int64
	sec, nsec   int64
	present, ok bool
}

// NewReader follows the file below kubelet's root folder.
func NewReader(kubeletRoot string, sink Sink, clock func() time.Time, log logrus.FieldLogger) *Reader {
	path := filepath.Join(kubeletRoot, FileName)
	return &Reader{path: path, sink: sink, clock: clock, log: log.WithField("file", path), status: Status{Path: path}}
}

// Run looks at the file now and every period, until ctx ends.
func (r *Reader) Run(ctx context.Context, period time.Duration) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		r.look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Status returns what was last seen.
func (r *Reader) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// look reads the file if it is not the one that was read last. A file that
// cannot be used is as good as none, which is said once, until it can be used.
func (r *Reader) look() {
	id, pods, err := read(r.path, r.seen)
	now := r.clock()
	if errors.Is(err, errSame) {
		r.mu.Lock()
		if r.status.Present {
			r.status.Looked = now
		}
		r.mu.Unlock()
		return
	}
	absent := errors.Is(err, fs.ErrNotExist)
	r.mu.Lock()
	before := r.status
	after := Status{Path: r.path, Present: err == nil, Pods: len(pods), Changed: before.Changed}
	after.Looked = before.Looked
	if err == nil {
		after.Looked = now
	}
	if err == nil || before.Present {
		after.Changed = now
	}
	if err != nil && !absent {
		after.Problem = err.Error()
	}
	r.status = after
	r.mu.Unlock()
	r.seen = id
	if err == nil {
		r.sink.SetAllocations(pods)
	} else if before.Present {
		r.sink.SetAllocations(nil)
	}
	switch {
	case err == nil && (!before.Present || before.Problem != ""):
		r.log.WithField("pods", len(pods)).Info("requests are what kubelet allocated")
	case err != nil && !absent && before.Problem == "":
		r.log.WithError(err).Warn("kubelet's file of allocated resources cannot be used: while a pod is being resized its request is that of its spec")
	}
}

// errSame says that the file is the one that was read last.
var errSame = errors.New("not changed")

// read returns the file's content and identity; errSame if that is last.
func read(path string, last identity) (identity, map[string]kube.Allocation, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if last.ok && !last.present {
			return last, nil, errSame
		}
		return identity{ok: true}, nil, err
	}
	if err != nil {
		return identity{}, nil, err
	}
	defer func() { _ = f.Close() }() // read only
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, nil, fmt.Errorf("stat %s: %w", path, err)
	}
	id := identity{inode: st.Ino, size: st.Size, sec: int64(st.Mtim.Sec), nsec: int64(st.Mtim.Nsec), present: true, ok: true}
	if id == last {
		return last, nil, errSame
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxSize {
		return id, nil, fmt.Errorf("%w: no file of at most %d bytes", ErrFormat, maxSize)
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSize))
	if err != nil {
		return identity{}, nil, err
	}
	pods, err := Parse(content)
	return id, pods, err
}
