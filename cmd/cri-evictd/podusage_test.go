package main

import (
	"slices"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/diskusage"
)

// What the evictor gets says the same as what was measured.
func TestPodUsage(t *testing.T) {
	var _ eviction.PodUsageSource = (*podUsage)(nil)
	words := map[diskusage.Kind]string{
		diskusage.WritableLayer: eviction.PartWritableLayer, diskusage.DeletedFiles: eviction.PartDeletedFiles, diskusage.Logs: eviction.PartLogs,
		diskusage.EmptyDir: eviction.PartEmptyDir, diskusage.EtcHosts: eviction.PartEtcHosts, diskusage.TerminationLog: eviction.PartTerminationLog,
	}
	for kind, word := range words {
		if string(kind) != word {
			t.Errorf("%s is called %s", kind, word)
		}
	}
	sources := map[diskusage.Source]eviction.UsageSource{
		diskusage.FromCRI: eviction.UsageFromCRI, diskusage.FromQuota: eviction.UsageFromQuota, diskusage.FromWalk: eviction.UsageFromWalk, diskusage.FromProc: eviction.UsageFromProc,
	}
	for source, word := range sources {
		if string(source) != string(word) {
			t.Errorf("%s is called %s", source, word)
		}
	}
	freed := map[diskusage.Freed]eviction.FreedBy{
		diskusage.ByStop: eviction.FreedByStop, diskusage.ByRemoval: eviction.FreedByRemoval, diskusage.ByDeletion: eviction.FreedByDeletion,
	}
	for f, want := range freed {
		if got := freedBy(f); got != want {
			t.Errorf("%d is %s, want %s", f, got, want)
		}
	}

	at := time.Unix(5, 0)
	got := podUsages(&diskusage.Usage{Pods: map[string]*diskusage.Pod{"u": {Parts: []diskusage.Part{
		{
			Kind: diskusage.EmptyDir, Name: "v", Device: 3, Freed: diskusage.ByDeletion, Source: diskusage.FromWalk, At: at, AtLeast: true,
			Bytes: diskusage.Number{Value: 7, Known: true}, Inodes: diskusage.Number{Value: 2, Known: true, Exact: true},
		},
		{Kind: diskusage.WritableLayer, Device: 4, Freed: diskusage.ByRemoval, Source: diskusage.FromCRI},
	}}}})
	volume := eviction.UsagePart{
		What: eviction.PartEmptyDir, Name: "v", Device: 3, Freed: eviction.FreedByDeletion, Source: eviction.UsageFromWalk, At: at,
		Bytes: eviction.UsageNumber{Value: 7, Known: true}, Inodes: eviction.UsageNumber{Value: 2, Known: true, Exact: true},
	}
	rest := volume
	rest.Bytes, rest.Inodes = eviction.UsageNumber{}, eviction.UsageNumber{}
	layer := eviction.UsagePart{What: eviction.PartWritableLayer, Device: 4, Freed: eviction.FreedByRemoval, Source: eviction.UsageFromCRI}
	if want := []eviction.UsagePart{volume, rest, layer}; len(got) != 1 || !slices.Equal(got["u"].Parts, want) {
		t.Errorf("%+v, want %+v", got["u"], want)
	}
}
