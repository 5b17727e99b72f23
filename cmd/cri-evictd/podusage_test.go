package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/diskusage"
	"github.com/cri-evictd/cri-evictd/inventory"
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

type layerOf string

func (l layerOf) ListContainerStats(context.Context) ([]*runtimeapi.ContainerStats, error) {
	return []*runtimeapi.ContainerStats{{
		Attributes: &runtimeapi.ContainerAttributes{Id: "c"},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: string(l)},
			UsedBytes: &runtimeapi.UInt64Value{Value: 700}, InodesUsed: &runtimeapi.UInt64Value{Value: 7},
		},
	}}, nil
}

// From a pod's real directories to what the evictor is told; in an alarm nothing
// is walked.
func TestPodUsageRuns(t *testing.T) {
	root := t.TempDir()
	logs := filepath.Join(root, "logs", "ns_pod_u1", "c")
	for _, dir := range []string{logs, filepath.Join(root, "kubelet", "pods", "u1")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(logs, "0.log"), make([]byte, 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		store := inventory.NewStore(inventory.Options{MemTotal: 1 << 30})
		store.ApplyListing(inventory.Listing{
			Started: time.Now(), Finished: time.Now(),
			Sandboxes:  []inventory.ListedSandbox{{Sandbox: inventory.Sandbox{ID: "s", Ready: true}, Pod: inventory.Ref{Namespace: "ns", Name: "pod", UID: "u1"}}},
			Containers: []inventory.Container{{ID: "c", SandboxID: "s", Name: "c", Running: true}},
		})
		places := diskusage.Places{KubeletRoot: filepath.Join(root, "kubelet"), LogsDir: filepath.Join(root, "logs"), Proc: "/proc"}
		u := newPodUsage(places, nil, store, layerOf(root), log)
		var alarm atomic.Bool
		alarm.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { u.run(ctx, alarm.Load, log) })
		kinds := func() map[string]eviction.UsagePart {
			out := map[string]eviction.UsagePart{}
			time.Sleep(5 * time.Second)
			if p := u.PodUsage()["u1"]; p != nil {
				for _, part := range p.Parts {
					out[part.What] = part
				}
			}
			return out
		}
		if k := kinds(); k[eviction.PartLogs].Bytes.Known || k[eviction.PartWritableLayer].Bytes.Value != 700 {
			t.Errorf("in an alarm: %+v", k)
		}
		alarm.Store(false)
		if k := kinds(); k[eviction.PartLogs].Inodes.Value != 3 || k[eviction.PartLogs].Freed != eviction.FreedByDeletion {
			t.Errorf("%+v", k)
		}
		if a, b := u.PodUsage(), u.PodUsage(); a["u1"] != b["u1"] {
			t.Error("what has not changed is made anew")
		}
		cancel()
		wg.Wait()
	})
}
