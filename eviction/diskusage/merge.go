package diskusage

import (
	"slices"
	"time"
)

// Layer is the writable layer of a container, as the runtime told it.
type Layer struct {
	// Device is st_dev of where it lies; 0 when that is not known, Why then says
	// why.
	Device        uint64
	Bytes, Inodes Number
	// At is the sample's own timestamp.
	At  time.Time
	Why string
}

// container is a container of a pod with its layer, nil when none was told.
type container struct {
	name    string
	running bool
	layer   *Layer
}

// inputs is what a pod's numbers are made of.
type inputs struct {
	containers []container
	// layers is the device of the layers whose own was not told; 0 when unknown.
	layers uint64
	// trees are the roots, as walked or told by a quota.
	trees []Part
	// open are the deleted files; openAt is when they were looked for, zero for
	// never, and openWhy why that is not complete.
	open    []openSum
	openAt  time.Time
	openWhy string
	// nodeDevice is where deleted files are said to be unknown.
	nodeDevice uint64
}

// merge puts the parts of a pod together. A running container's layer that is
// older than fresh is unknown; until says when the oldest of them will be (zero
// for never).
func merge(in *inputs, now time.Time, fresh time.Duration) (pod *Pod, until time.Time) {
	parts := make([]Part, 0, len(in.containers)+len(in.trees)+len(in.open)+1)
	for i := range in.containers {
		c := &in.containers[i]
		p := layerPart(c, in.layers, now, fresh)
		if c.running && p.Bytes.Known {
			if end := p.At.Add(fresh); until.IsZero() || end.Before(until) {
				until = end
			}
		}
		parts = append(parts, p)
	}
	for _, t := range in.trees {
		if t.project != 0 {
			t.Bytes.Value, t.Inodes.Value = withoutOpen(&t, in.open)
		}
		parts = append(parts, t)
	}
	return &Pod{Parts: append(parts, openParts(in)...)}, until
}

// layerPart is the part of one container. The layer of one that has ended does
// not change any more: what was seen last stands, and may lack what was written
// just before the end.
func layerPart(c *container, device uint64, now time.Time, fresh time.Duration) Part {
	p := Part{Kind: WritableLayer, Name: c.name, Device: device, Freed: ByRemoval, Source: FromCRI}
	if !c.running {
		// We remove what an eviction has ended. The record of one that ended before
		// may be all that kubelet knows of it (facts/kubelet.md §6.8).
		p.Freed = ByDeletion
	}
	l := c.layer
	if l == nil {
		p.Why = "the runtime does not tell"
		return p
	}
	p.At, p.Why = l.At, l.Why
	if l.Device != 0 || l.Why != "" {
		p.Device = l.Device
	}
	switch {
	case c.running && now.Sub(l.At) > fresh:
		p.Why = "the runtime's numbers are too old"
		return p
	case !c.running:
		l = &Layer{Bytes: inexact(l.Bytes), Inodes: inexact(l.Inodes)}
	}
	p.Bytes, p.Inodes = l.Bytes, l.Inodes
	return p
}

func inexact(n Number) Number {
	n.Exact = false
	return n
}

// withoutOpen takes out of a quota's numbers what was deleted and is still open:
// the filesystem goes on counting it, and it is a part of its own. A project is
// one volume's.
func withoutOpen(t *Part, open []openSum) (bytes, inodes uint64) {
	bytes, inodes = t.Bytes.Value, t.Inodes.Value
	for _, o := range open {
		if o.device == t.Device && o.project == t.project {
			bytes -= min(bytes, o.blocks*blockSize)
			inodes -= min(inodes, o.inodes)
		}
	}
	return bytes, inodes
}

// openParts are the deleted files, one part for each device. They are estimates:
// somebody outside the pod may have them open as well, and a file that is only
// mapped is not seen.
func openParts(in *inputs) []Part {
	unknown := Part{Kind: DeletedFiles, Device: in.nodeDevice, Freed: ByStop, Source: FromProc, At: in.openAt, Why: in.openWhy}
	if in.openAt.IsZero() {
		if unknown.Why == "" {
			unknown.Why = "not looked for yet"
		}
		return []Part{unknown}
	}
	var out []Part
	for _, o := range in.open {
		i := slices.IndexFunc(out, func(p Part) bool { return p.Device == o.device })
		if i < 0 {
			i = len(out)
			p := unknown
			p.Device, p.AtLeast = o.device, in.openWhy != ""
			p.Bytes.Known, p.Inodes.Known = true, true
			out = append(out, p)
		}
		out[i].Bytes.Value += o.blocks * blockSize
		out[i].Inodes.Value += o.inodes
	}
	if len(out) == 0 && in.openWhy != "" {
		return []Part{unknown}
	}
	return out
}
