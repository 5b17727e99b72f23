package eviction

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"
)

// slowReader reads the signals of disk, inodes and PIDs in goroutines of its own:
// nothing else waits for a disk or the runtime. What it last read is guarded by
// mu.
type slowReader struct {
	parts  SlowParts
	clock  func() time.Time
	values func() map[Signal][]Threshold // those in force
	// breached is signalled when a threshold comes to be met; nobody waits.
	breached chan<- struct{}

	mu       sync.Mutex
	readings map[Signal]Reading
	// good is the last reading of each signal that is known.
	good   map[Signal]Reading
	layout Layout
	// capacity is the last one known: a threshold in percent keeps its amount
	// while the signal cannot be read.
	capacity map[Signal]uint64
	failures map[Signal]uint64
	paths    imagePaths
}

// imagePaths are the runtime's, and why they are not known.
type imagePaths struct {
	images, containers string
	err                error
}

func newSlowReader(p SlowParts, clock func() time.Time, values func() map[Signal][]Threshold, breached chan<- struct{}) *slowReader {
	return &slowReader{
		parts: p, clock: clock, values: values, breached: breached, layout: LayoutUnknown,
		readings: map[Signal]Reading{}, good: map[Signal]Reading{}, capacity: map[Signal]uint64{}, failures: map[Signal]uint64{},
	}
}

// run reads until ctx ends.
func (r *slowReader) run(ctx context.Context) {
	var wg sync.WaitGroup
	asked := make(chan struct{}) // the first reading knows what there is to read
	var once sync.Once
	wg.Go(func() {
		r.every(ctx, func() time.Duration {
			defer once.Do(func() { close(asked) })
			return r.askPaths(ctx)
		})
	})
	wg.Go(func() {
		select {
		case <-asked:
		case <-ctx.Done():
		}
		r.every(ctx, func() time.Duration { r.readDisks(ctx); return diskEvery })
	})
	wg.Go(func() { r.every(ctx, r.readPIDs) })
	wg.Wait()
}

func (r *slowReader) every(ctx context.Context, read func() time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(read())
	}
}

// watched says whether anything is configured for the disks or, pids, for PIDs.
func (r *slowReader) watched(pids bool) bool {
	for s := range r.values() {
		if (s == PIDAvailable) == pids {
			return true
		}
	}
	return false
}

// readDisks takes one reading of each file system, all at the same time.
func (r *slowReader) readDisks(ctx context.Context) {
	if r.parts.Filesystems == nil || !r.watched(false) {
		return
	}
	r.mu.Lock()
	paths := r.paths
	r.mu.Unlock()
	in := diskInput{
		logs:   fsRead{path: r.parts.PodLogs},
		images: fsRead{path: paths.images}, containers: fsRead{path: paths.containers}, imagesErr: paths.err,
	}
	if in.containers.path == in.images.path {
		in.containers.path = ""
	}
	var wg sync.WaitGroup
	for _, f := range []*fsRead{&in.logs, &in.images, &in.containers} {
		if f.path != "" {
			wg.Go(func() { f.fs, f.err = r.parts.Filesystems.Read(ctx, f.path) })
		}
	}
	wg.Go(func() { in.node = r.readNode(ctx) })
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	if l := in.layout(); l != LayoutUnknown {
		r.layout = l
	}
	r.mu.Unlock()
	for s, reading := range in.readings(r.values()) {
		r.take(s, reading)
	}
}

// readNode reads the file system of kubelet's root directory or, as long as that
// is not there, of the directory it will be made in.
func (r *slowReader) readNode(ctx context.Context) fsRead {
	first := fsRead{path: r.parts.KubeletRoot}
	first.fs, first.err = r.parts.Filesystems.Read(ctx, first.path)
	for out := first; ; {
		if !errors.Is(out.err, fs.ErrNotExist) {
			return out
		}
		parent := filepath.Dir(out.path)
		if parent == out.path {
			return first
		}
		out.path = parent
		out.fs, out.err = r.parts.Filesystems.Read(ctx, out.path)
	}
}

// askPaths asks the runtime for its paths and says when to ask again. A runtime
// that does not answer keeps the paths it named before: they do not move.
func (r *slowReader) askPaths(ctx context.Context) time.Duration {
	if r.parts.ImagePaths == nil || !r.watched(false) {
		return pathsAgain
	}
	askCtx, cancel := context.WithTimeout(ctx, pathsPatience)
	defer cancel()
	images, containers, err := r.parts.ImagePaths(askCtx)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.paths = imagePaths{images: images, containers: containers}
	case r.paths.images == "":
		r.paths.err = err
	default:
		r.paths.err = nil
	}
	if r.paths.images == "" {
		return pathsAgain
	}
	return pathsEvery
}

// readPIDs takes one reading of the machine's tasks.
func (r *slowReader) readPIDs() time.Duration {
	if r.parts.PIDs == nil || !r.watched(true) {
		return pidEvery
	}
	p, err := r.parts.PIDs()
	out := Reading{At: r.clock(), Available: p.Available(), Capacity: p.Max}
	if err != nil {
		out = Reading{Problem: err.Error()}
	}
	r.take(PIDAvailable, out)
	if err == nil && margin(&Reading{Available: out.Available / nearMultiple, Capacity: out.Capacity}, r.values()[PIDAvailable]) < 0 {
		return pidNear
	}
	return pidEvery
}

// take keeps a reading and says so when a threshold came to be met.
func (r *slowReader) take(s Signal, now Reading) {
	values := r.values()[s]
	r.mu.Lock()
	before := r.good[s]
	r.readings[s] = now
	if !now.At.IsZero() {
		r.capacity[s], r.good[s] = now.Capacity, now
	} else if !now.Absent {
		r.failures[s]++
	}
	r.mu.Unlock()
	met := func(x *Reading) bool { return !x.At.IsZero() && margin(x, values) < 0 }
	if len(values) > 0 && met(&now) && !met(&before) {
		select {
		case r.breached <- struct{}{}:
		default:
		}
	}
}

// reading is the last one of a signal, known the last one that is known.
func (r *slowReader) reading(s Signal) (last, known Reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readings[s], r.good[s]
}

// capacityOf is the last capacity known, 0 for none.
func (r *slowReader) capacityOf(s Signal) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.capacity[s]
}

// errUnknownNow is a signal that cannot be read just now.
var errUnknownNow = errors.New("the signal is not known now")

// now reads a signal anew, for a Reclaimer and for the start.
func (r *slowReader) now(ctx context.Context, s Signal) (Reading, error) {
	if s == PIDAvailable {
		p, err := r.parts.PIDs()
		return Reading{At: r.clock(), Available: p.Available(), Capacity: p.Max}, err
	}
	_, last := r.reading(s)
	if last.Path == "" {
		return Reading{}, errUnknownNow
	}
	now, err := r.parts.Filesystems.Read(ctx, last.Path)
	if err != nil {
		return Reading{}, err
	}
	f := fsRead{path: last.Path, fs: now}
	out := f.reading(s.Unit() == Inodes)
	if out.At.IsZero() {
		return out, errUnknownNow
	}
	return out, nil
}
