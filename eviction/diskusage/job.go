package diskusage

import (
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// job is one walk through everything a pod has. It is used by the walker's
// goroutine alone.
type job struct {
	began time.Time
	ref   inventory.Ref
	roots []root // left to do
	tree  *tree  // being walked
	open  *openFiles
	links links
	found found
	tools *tools
}

// found is what a walk has found.
type found struct {
	began time.Time
	trees []Part
	open  []openSum
	// openAt is zero until the open files were looked through.
	openAt  time.Time
	openWhy string
	whole   bool   // the walk is over
	node    uint64 // device of the pods' directories
}

// tools are what the walks share.
type tools struct {
	places   Places
	opener   opener
	mem      *memory
	buf      [chunk]byte
	projects projects
	procs    Processes
	devices  *devices
}

// newJob begins a walk.
func newJob(p *inventory.Pod, t *tools, now time.Time) *job {
	j := &job{began: now, ref: p.Ref, tools: t, links: links{mem: t.mem}, found: found{began: now}}
	j.roots = t.places.fixed(p.Ref)
	volumes, err := t.places.volumes(&t.opener, p.UID)
	j.roots = append(j.roots, volumes...)
	if err != nil {
		j.found.trees = append(j.found.trees, Part{Kind: EmptyDir, Device: t.devices.node, Freed: ByDeletion, Source: FromWalk, At: now, Why: err.Error()})
	}
	if cgroups := cgroupsOf(p); t.procs != nil && t.places.Proc != "" && len(cgroups) > 0 {
		j.open = &openFiles{
			proc: t.places.Proc, cgroups: cgroups, procs: t.procs, count: t.devices.real,
			links: &j.links, buf: &t.buf, stat: &t.opener.stat,
		}
	} else {
		j.found.openWhy = "its processes are not known"
	}
	return j
}

// cgroupsOf are the cgroups whose processes are surely this pod's.
func cgroupsOf(p *inventory.Pod) []string {
	if p.OwnCgroup && p.Cgroup != "" {
		return []string{p.Cgroup}
	}
	var out []string
	for _, c := range p.RunningContainers() {
		if c.Cgroup != "" {
			out = append(out, c.Cgroup)
		}
	}
	return out
}

// step works until stop says so; it reports whether the walk is over.
func (j *job) step(now time.Time, stop func() bool) (done bool) {
	t := j.tools
	for j.tree != nil || len(j.roots) > 0 {
		if j.tree == nil {
			r := j.roots[0]
			j.roots = j.roots[1:]
			j.tree = &tree{
				root: r, opener: &t.opener, links: &j.links, mem: t.mem, buf: &t.buf, stat: &t.opener.stat, quota: t.projects.usage,
			}
		}
		if !j.tree.step(stop) {
			return false
		}
		if p, ok := j.tree.part(); ok {
			p.At = j.began
			j.found.trees = append(j.found.trees, p)
		}
		j.tree = nil
		if stop() {
			return false
		}
	}
	if j.open != nil {
		if j.found.openAt.IsZero() {
			j.found.openAt = now
			j.open.quotas = counted(j.found.trees)
		}
		if !j.open.step(stop) {
			return false
		}
		j.found.open, j.found.openWhy = j.open.found, j.open.why
	}
	j.found.whole = true
	j.end()
	return true
}

// end gives the walk's memory back.
func (j *job) end() {
	if j.tree != nil {
		j.tree.release()
		j.tree = nil
	}
	j.links.release()
}

// counted says whether a quota is among the parts.
func counted(parts []Part) bool {
	for i := range parts {
		if parts[i].Source == FromQuota {
			return true
		}
	}
	return false
}

// sofar is what an unfinished walk has found, together with what the last one
// knew: of each root whichever says more, because the walk in progress is only
// known to find at least so much.
func (j *job) sofar(last *found) *found {
	out := &found{began: j.began}
	parts := j.found.trees
	if j.tree != nil {
		if p, ok := j.tree.part(); ok && p.Source == FromWalk {
			p.At, p.AtLeast = j.began, true
			p.Bytes.Exact, p.Inodes.Exact = false, false
			if p.Why == "" {
				p.Why = "it is being walked"
			}
			parts = append(parts[:len(parts):len(parts)], p)
		}
	}
	if last == nil {
		out.trees = parts
		return out
	}
	out.open, out.openAt, out.openWhy = last.open, last.openAt, last.openWhy
	for _, old := range last.trees {
		if i := find(parts, &old); i >= 0 && (!parts[i].AtLeast || parts[i].Bytes.Value > old.Bytes.Value) {
			continue
		}
		out.trees = append(out.trees, old)
	}
	for _, p := range parts {
		if i := find(out.trees, &p); i < 0 {
			out.trees = append(out.trees, p)
		}
	}
	return out
}

func find(parts []Part, like *Part) int {
	for i := range parts {
		if parts[i].Kind == like.Kind && parts[i].Name == like.Name {
			return i
		}
	}
	return -1
}
