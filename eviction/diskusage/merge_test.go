package diskusage

import (
	"testing"
	"time"
)

func exactly(n uint64) Number { return Number{Value: n, Known: true, Exact: true} }

func only(t *testing.T, p *Pod, k Kind) Part {
	t.Helper()
	var out []Part
	for _, part := range p.Parts {
		if part.Kind == k {
			out = append(out, part)
		}
	}
	if len(out) != 1 {
		t.Fatalf("%d parts of kind %s in %+v", len(out), k, p.Parts)
	}
	return out[0]
}

// A running container's layer counts for two periods, the layer of one that has
// ended for ever, and none is ever nothing.
func TestMergeLayers(t *testing.T) {
	const fresh = 20 * time.Second
	layer := &Layer{Device: 3, Bytes: exactly(100), Inodes: exactly(10), At: t0}
	for _, c := range []struct {
		name    string
		running bool
		layer   *Layer
		age     time.Duration
		bytes   Number
		device  uint64
		until   time.Time
	}{
		{"fresh", true, layer, 0, exactly(100), 3, t0.Add(fresh)},
		{"two periods old", true, layer, fresh, exactly(100), 3, t0.Add(fresh)},
		{"older", true, layer, fresh + 1, Number{}, 3, time.Time{}},
		{"ended", false, layer, time.Hour, Number{Value: 100, Known: true}, 3, time.Time{}},
		{"not told", true, nil, 0, Number{}, 9, time.Time{}},
		{"not told of one that ended", false, nil, 0, Number{}, 9, time.Time{}},
		{"without bytes", true, &Layer{Device: 3, Inodes: exactly(10), At: t0}, 0, Number{}, 3, time.Time{}},
		{"in a pool", true, &Layer{Bytes: exactly(5), At: t0, Why: "pool"}, 0, exactly(5), 0, t0.Add(fresh)},
	} {
		in := inputs{containers: []container{{name: "c", running: c.running, layer: c.layer}}, layers: 9}
		pod, until := merge(&in, t0.Add(c.age), fresh)
		p, freed := only(t, pod, WritableLayer), ByRemoval
		if !c.running {
			freed = ByDeletion
		}
		if p.Bytes != c.bytes || p.Device != c.device || p.Freed != freed || p.Source != FromCRI || p.Name != "c" {
			t.Errorf("%s: %+v", c.name, p)
		}
		if !until.Equal(c.until) {
			t.Errorf("%s: until %v", c.name, until)
		}
		if !p.Bytes.Known && c.layer != nil && c.layer.Bytes.Known && p.Why == "" {
			t.Errorf("%s: no word why", c.name)
		}
	}
}

// What a quota counts includes deleted files, which are a part of their own.
func TestMergeQuotaAndDeletedFiles(t *testing.T) {
	in := inputs{
		trees: []Part{
			{Kind: EmptyDir, Device: 1, Source: FromQuota, project: 7, Bytes: exactly(10000 * 512), Inodes: exactly(50)},
			{Kind: Logs, Device: 1, Source: FromWalk, Bytes: exactly(300 * 512), Inodes: exactly(3)},
		},
		open:   []openSum{{device: 1, project: 7, blocks: 4000, inodes: 2}, {device: 1, blocks: 30, inodes: 1}, {device: 2, project: 7, blocks: 9, inodes: 1}},
		openAt: t0,
	}
	pod, _ := merge(&in, t0, time.Second)
	if p := only(t, pod, EmptyDir); p.Bytes != exactly(6000*512) || p.Inodes != exactly(48) {
		t.Errorf("%+v", p)
	}
	if p := only(t, pod, Logs); p.Bytes != exactly(300*512) {
		t.Errorf("%+v", p)
	}
	byDevice := map[uint64]Part{}
	for _, p := range pod.Parts {
		if p.Kind == DeletedFiles {
			byDevice[p.Device] = p
		}
	}
	want := Number{Value: 4030 * 512, Known: true}
	if p := byDevice[1]; p.Bytes != want || p.Inodes.Value != 3 || p.Freed != ByStop || p.Source != FromProc || len(byDevice) != 2 {
		t.Errorf("%+v", byDevice)
	}
	// A quota below what is open was read earlier: never below zero.
	in.trees[0].Bytes, in.trees[0].Inodes = exactly(5), exactly(1)
	pod, _ = merge(&in, t0, time.Second)
	if p := only(t, pod, EmptyDir); p.Bytes.Value != 0 || p.Inodes.Value != 0 {
		t.Errorf("%+v", p)
	}
}

// Open files that could not be looked at are unknown; those that were, and are
// none, are no part; those that were in part say so.
func TestMergeOpenFilesUnknown(t *testing.T) {
	pod, _ := merge(&inputs{nodeDevice: 4}, t0, time.Second)
	if p := only(t, pod, DeletedFiles); p.Bytes.Known || p.Device != 4 || p.Why == "" {
		t.Errorf("%+v", p)
	}
	pod, _ = merge(&inputs{openAt: t0}, t0, time.Second)
	if len(pod.Parts) != 0 {
		t.Errorf("%+v", pod.Parts)
	}
	pod, _ = merge(&inputs{openAt: t0, openWhy: "too many", nodeDevice: 4}, t0, time.Second)
	if p := only(t, pod, DeletedFiles); p.Bytes.Known || p.Why != "too many" {
		t.Errorf("%+v", p)
	}
	pod, _ = merge(&inputs{openAt: t0, openWhy: "too many", open: []openSum{{device: 4, blocks: 1, inodes: 1}}}, t0, time.Second)
	if p := only(t, pod, DeletedFiles); p.Bytes.Value != 512 || !p.AtLeast {
		t.Errorf("%+v", p)
	}
}

// What deletion, removal and a stop give back, by kind (facts/kubelet.md §6.7).
func TestFreed(t *testing.T) {
	for k, want := range map[Kind]Freed{
		DeletedFiles: ByStop, WritableLayer: ByRemoval, Logs: ByDeletion, EmptyDir: ByDeletion, EtcHosts: ByDeletion, TerminationLog: ByDeletion,
	} {
		if got := k.freed(); got != want {
			t.Errorf("%s: %d, want %d", k, got, want)
		}
	}
}

// A walk in progress says at least so much, and never less than what is known.
func TestSofar(t *testing.T) {
	part := func(kind Kind, n uint64, atLeast bool) Part {
		return Part{Kind: kind, Source: FromWalk, Bytes: exactly(n), AtLeast: atLeast}
	}
	last := &found{trees: []Part{part(Logs, 100, false), part(EmptyDir, 1000, false), part(EtcHosts, 1, false)}, openAt: t0}
	for _, c := range []struct {
		name         string
		now          uint64
		wantEmptyDir uint64
		atLeast      bool
	}{{"less than known", 500, 1000, false}, {"more than known", 1500, 1500, true}} {
		j := &job{began: t0, found: found{trees: []Part{part(Logs, 50, false), part(EmptyDir, c.now, true)}}}
		f := j.sofar(last)
		byKind := map[Kind]Part{}
		for _, p := range f.trees {
			byKind[p.Kind] = p
		}
		if len(f.trees) != 3 || byKind[Logs].Bytes.Value != 50 || byKind[EtcHosts].Bytes.Value != 1 ||
			byKind[EmptyDir].Bytes.Value != c.wantEmptyDir || byKind[EmptyDir].AtLeast != c.atLeast || !f.openAt.Equal(t0) {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	first := (&job{began: t0, found: found{trees: []Part{part(Logs, 50, false)}}}).sofar(nil)
	if len(first.trees) != 1 || !first.openAt.IsZero() {
		t.Errorf("%+v", first)
	}
}
