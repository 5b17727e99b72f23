package main

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/eviction/gc/criruntime"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// gcParts are what garbage collection knows of the rest of the evictor.
type gcParts struct {
	lv     *live
	m      *machine
	client *cri.Client
	store  *inventory.Store
	facts  *podFacts
	writer *holds.Writer
	usage  func() map[string]*eviction.PodUsage
	// acts is set before the collector runs.
	acts func() bool
}

// newGC wires garbage collection. uses learns what passes through the proxy.
func newGC(p *gcParts, log logrus.FieldLogger) (collector *gc.Collector, uses *gc.Uses) {
	cfg := p.lv.config()
	file := gc.UseFile{Path: filepath.Join(cfg.StateDir, "images.json")}
	known, err := file.Load()
	if err != nil {
		log.WithError(err).Warn("when images were used is not known: all count as used now")
	}
	uses = gc.NewUses(known, time.Now)
	read := p.m.filesystems().Read
	return gc.New(gc.Options{
		Runtime: criruntime.Runtime{Client: p.client}, Reservations: gcReservations{cfg.ProxySocket.Path}, Uses: uses, Save: file.Save,
		Pods: p.store.Snapshot, Gone: p.facts.store.Gone, Held: func() map[string]bool { return heldUIDs(p.writer.Records()) },
		Devices: gcDevices(p.client, read), Filesystem: read,
		Consumers: func(device uint64, unit eviction.Unit) []gc.Consumer {
			return consumersOf(p.store.Snapshot().Pods, p.usage(), device, unit)
		},
		Acts:     func() bool { return p.acts() },
		Kubelet:  func() bool { return kubeletHere(p.lv.config(), p.facts.store.Known(), p.store.Snapshot()) },
		Settings: func() gc.Settings { return p.lv.config().ImageGC }, Clock: time.Now,
	}, log.WithField("part", "gc")), uses
}

// configSource is what kubelet writes on each of its sandboxes.
const configSource = "kubernetes.io/config.source"

// heldUIDs are the pods that were evicted or are being.
func heldUIDs(records []holds.Record) map[string]bool {
	out := map[string]bool{}
	for _, r := range records {
		if r.Holds() {
			out[r.UID] = true
		}
	}
	return out
}

// kubeletHere says whether there is a sign of a kubelet on this node: its
// configuration, somebody who tells what Kubernetes knows of the pods, or pods that
// kubelet made.
func kubeletHere(cfg config.Config, told bool, s *inventory.Snapshot) bool {
	return cfg.KubeletConfig != "" || told || slices.ContainsFunc(s.Pods, func(p *inventory.Pod) bool {
		_, made := p.Annotations[configSource]
		return made
	})
}

// consumersOf lists the pods by what they have on a device, the largest first.
func consumersOf(pods []*inventory.Pod, usage map[string]*eviction.PodUsage, device uint64, unit eviction.Unit) []gc.Consumer {
	var out []gc.Consumer
	for _, p := range pods {
		u := usage[p.UID]
		if u == nil {
			continue
		}
		var n uint64
		for i := range u.Parts {
			part := &u.Parts[i]
			switch {
			case part.Device != device:
			case unit == eviction.Inodes:
				n += part.Inodes.Value
			default:
				n += part.Bytes.Value
			}
		}
		if n > 0 {
			out = append(out, gc.Consumer{Name: p.String(), Amount: n})
		}
	}
	slices.SortFunc(out, func(a, b gc.Consumer) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// noteImages has the uses of images learn from an event of the proxy.
func noteImages(uses *gc.Uses, e *proxy.Event) {
	names := append([]string{e.Image}, e.MountedImages...)
	switch e.Type {
	case proxy.EventHello, proxy.EventDirty:
		uses.Linked()
	case proxy.EventPullBegin:
		uses.Begin(e.Image)
	case proxy.EventPullEnd:
		uses.Pulled(e.Err == "", e.Image, e.ImageID)
	case proxy.EventCreateBegin:
		uses.Begin(names...)
	case proxy.EventCreateEnd:
		uses.Created(e.Err == "", names...)
	}
}
