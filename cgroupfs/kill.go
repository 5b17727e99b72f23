package cgroupfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// UnknownCount is how many processes cgroup.kill has signalled: it does not
// say.
const UnknownCount = -1

// defaultKillTimeout ends a hunt for processes that fork faster than they are
// killed.
const defaultKillTimeout = time.Second

// KillOptions are the bounds of a kill.
type KillOptions struct {
	// Skip are processes never to be signalled (ourselves). If one of them is
	// in a v2 subtree, the others are killed one by one; looking for them
	// costs a listing, so leave it empty where Foreign was asked before.
	Skip []int
	// Timeout bounds the kill of processes one by one; 0 means 1 s.
	Timeout time.Duration
}

// Kill sends SIGKILL to every process of the subtree. It does not wait for
// them to end: that is for Populated to see. The result is the number of
// processes signalled, UnknownCount on v2.
//
// v2 writes to the kept cgroup.kill: one write, no allocation, forks cannot
// escape. v1 (and kernels before 5.14) freezes what it can, signals each
// process through a pidfd, thaws, and goes round until a listing shows no
// process that was not signalled. The thaw comes within 100 ms, also when the
// kill is stuck or fails.
//
// A path that names no pod is refused with ErrNotPod, a checked-in tree with
// ErrNotLive; a removed cgroup is ErrGone. Other errors name what could not be signalled; the rest was.
func (p *PodCgroup) Kill(opt KillOptions) (int, error) {
	if err := p.use(); err != nil {
		return 0, err
	}
	defer p.unuse()
	if !p.isPod {
		return 0, fmt.Errorf("%s: %w", p.path, ErrNotPod)
	}
	if p.kill == noFd {
		return p.killEach(opt, p.state != noFd)
	}
	if len(opt.Skip) > 0 {
		found, err := p.contains(opt.Skip)
		if err != nil {
			return 0, err
		}
		if found {
			return p.killEach(opt, false)
		}
	}
	err := writeAll(p.kill, p.killText)
	if errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup
		return p.killEach(opt, false)
	}
	if err != nil {
		return 0, goneOrBroken(filepath.Join(p.full, "cgroup.kill"), err)
	}
	return UnknownCount, nil
}

// KillByPidfd signals each process of the subtree through a pidfd, without
// freezing and without writing to any cgroup file: the way out when such a
// write hangs. Otherwise it is like Kill.
func (p *PodCgroup) KillByPidfd() (int, error) {
	if err := p.use(); err != nil {
		return 0, err
	}
	defer p.unuse()
	if !p.isPod {
		return 0, fmt.Errorf("%s: %w", p.path, ErrNotPod)
	}
	return p.killEach(KillOptions{}, false)
}

func (p *PodCgroup) contains(pids []int) (bool, error) {
	all, err := p.pids(nil)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(pids, func(pid int) bool { return slices.Contains(all, pid) }), nil
}

// killEach goes round until nobody is left who was not signalled.
func (p *PodCgroup) killEach(opt KillOptions, freeze bool) (int, error) {
	if !p.fs.live {
		return 0, fmt.Errorf("%s: %w", p.full, ErrNotLive)
	}
	timeout := opt.Timeout
	if timeout <= 0 {
		timeout = defaultKillTimeout
	}
	deadline := time.Now().Add(timeout)
	h := newHunt(opt.Skip)
	for round := 0; ; round++ {
		fresh, err := p.round(h, freeze)
		if err != nil {
			return h.count, h.result(err)
		}
		if fresh == 0 {
			break
		}
		// Whoever has a SIGKILL pending can not fork any more, so a listing
		// without a new process ends the hunt.
		if left, err := p.unsignalled(h); err != nil || left == 0 {
			return h.count, h.result(err)
		}
		if time.Now().After(deadline) {
			return h.count, h.result(fmt.Errorf("%s: %w", p.full, errForking))
		}
	}
	return h.count, h.result(nil)
}

// errForking ends a hunt that found new processes in every round.
var errForking = errors.New("processes appear faster than they are killed")

// round freezes, signals and thaws once. It gives the number of processes
// newly dealt with.
func (p *PodCgroup) round(h *hunt, freeze bool) (fresh int, err error) {
	if freeze {
		// A freeze that failed only makes the hunt longer.
		_ = p.freezeAll()
		if p.onFrozen != nil {
			p.onFrozen()
		}
		defer func() {
			terr := p.thawAll()
			p.watch.Stop()
			if fresh > 0 {
				p.thawBelow()
			}
			if terr != nil && err == nil && !isGone(terr) {
				err = broken(filepath.Join(p.fs.freezer, p.path, freezerState), "", nil, terr)
			}
		}()
	}
	fresh, err = h.signal(p)
	if p.onSignalled != nil {
		p.onSignalled()
	}
	return fresh, err
}

func (p *PodCgroup) unsignalled(h *hunt) (int, error) {
	var err error
	if h.list, err = p.pids(h.list[:0]); err != nil {
		return 0, err
	}
	left := 0
	for _, pid := range h.list {
		if !h.dealtWith(pid) {
			left++
		}
	}
	return left, nil
}
