package main

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/diskusage"
	"github.com/cri-evictd/cri-evictd/inventory"
)

// podUsage tells the evictor what pods have on disk.
type podUsage struct {
	collector *diskusage.Collector
	alarm     func() bool // set by run

	mu   sync.Mutex
	last *diskusage.Usage // what pods was made of
	pods map[string]*eviction.PodUsage
}

// newPodUsage measures nothing before run.
func newPodUsage(places diskusage.Places, fs *cgroupfs.FS, store *inventory.Store, stats diskusage.Stats, log logrus.FieldLogger) *podUsage {
	u := new(podUsage)
	u.collector = diskusage.New(diskusage.Options{
		Places: places, Pods: store.Snapshot, Stats: stats, Processes: diskusage.CgroupProcesses{FS: fs},
		Paused: func() bool { return u.alarm() }, Clock: time.Now, Log: log,
	})
	return u
}

// run measures until ctx ends, and rests while alarm says so.
func (u *podUsage) run(ctx context.Context, alarm func() bool, log logrus.FieldLogger) {
	u.alarm = alarm
	if err := u.collector.Run(ctx); err != nil {
		log.WithError(err).Warn("measuring what pods have on disk")
	}
}

// PodUsage implements eviction.PodUsageSource.
func (u *podUsage) PodUsage() map[string]*eviction.PodUsage {
	now := u.collector.Usage()
	u.mu.Lock()
	defer u.mu.Unlock()
	if now != u.last {
		u.last, u.pods = now, podUsages(now)
	}
	return u.pods
}

// Near implements eviction.PodUsageSource.
func (u *podUsage) Near(devices []uint64) { u.collector.Near(devices) }

func podUsages(u *diskusage.Usage) map[string]*eviction.PodUsage {
	out := make(map[string]*eviction.PodUsage, len(u.Pods))
	for uid, p := range u.Pods {
		parts := make([]eviction.UsagePart, 0, len(p.Parts)+1)
		for i := range p.Parts {
			part := usagePart(&p.Parts[i])
			parts = append(parts, part)
			if p.Parts[i].AtLeast {
				// What is missing is a part of which nothing is known.
				part.Bytes, part.Inodes = eviction.UsageNumber{}, eviction.UsageNumber{}
				parts = append(parts, part)
			}
		}
		out[uid] = &eviction.PodUsage{Parts: parts}
	}
	return out
}

// usagePart: the words of both packages for kinds and sources are the same.
func usagePart(p *diskusage.Part) eviction.UsagePart {
	return eviction.UsagePart{
		What: string(p.Kind), Name: p.Name, Device: p.Device, Freed: freedBy(p.Freed),
		Bytes: eviction.UsageNumber(p.Bytes), Inodes: eviction.UsageNumber(p.Inodes),
		Source: eviction.UsageSource(p.Source), At: p.At,
	}
}

func freedBy(f diskusage.Freed) eviction.FreedBy {
	switch f {
	case diskusage.ByStop:
		return eviction.FreedByStop
	case diskusage.ByRemoval:
		return eviction.FreedByRemoval
	default:
		return eviction.FreedByDeletion
	}
}
