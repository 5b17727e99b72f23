package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
	"github.com/cri-evictd/cri-evictd/kube/allocated"
	"github.com/cri-evictd/cri-evictd/kube/apiwatch"
	"github.com/cri-evictd/cri-evictd/kube/podsapi"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// factsPace is the least time between two looks of the inventory at the pod
// facts: a node that starts has many changes at once.
const factsPace = 100 * time.Millisecond

// allocatedEvery is how often kubelet's file of allocations is looked at; a look
// at one that has not changed is a stat.
const allocatedEvery = time.Second

// podFacts are the sources of what Kubernetes itself says of the pods.
type podFacts struct {
	store *kube.Store
	// kubelet and its feed are nil without a Pods API socket.
	kubelet     *podsapi.Reader
	kubeletFeed *kube.Feed
	api         *apiwatch.Watcher // nil without a kubeconfig
	allocation  *allocated.Reader
}

func newPodFacts(cfg config.Config, log logrus.FieldLogger) *podFacts {
	f := &podFacts{store: kube.NewStore(time.Now)}
	f.store.KeepLabels(cfg.TrustedNamespaces)
	if cfg.PodsAPISocket.Path != "" {
		f.kubeletFeed = f.store.Feed(inventory.FromPodsAPI)
		f.kubelet = podsapi.New(cfg.PodsAPISocket.Path, f.kubeletFeed, time.Now, log)
	}
	if cfg.Kubeconfig != "" {
		f.api = apiwatch.New(apiwatch.Options{
			Node: nodeName(cfg, log), Feed: f.store.Feed(inventory.FromAPI), Clock: time.Now, Log: log,
			Connect: func() (apiwatch.Pods, error) {
				return apiwatch.Connect(cfg.Kubeconfig, userAgent())
			},
		})
	}
	f.allocation = allocated.NewReader(cfg.KubeletRootDir, f.store, time.Now, log)
	return f
}

// findNodeName is the configured name or, as kubelet takes it, the host name in
// lower case (Kubernetes 1.37, pkg/util/node.GetHostname).
func findNodeName(cfg config.Config) (string, error) {
	if cfg.NodeName != "" {
		return cfg.NodeName, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("no host name: set nodeName: %w", err)
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

func nodeName(cfg config.Config, log logrus.FieldLogger) string {
	name, err := findNodeName(cfg)
	if err != nil {
		log.Error(err)
	}
	return name
}

// run reads until ctx ends.
func (f *podFacts) run(ctx context.Context, wg *sync.WaitGroup, syncer *inventory.Syncer) {
	if f.kubelet != nil {
		wg.Go(func() { f.kubelet.Run(ctx) })
	}
	if f.api != nil {
		wg.Go(func() { f.api.Run(ctx) })
	}
	wg.Go(func() { f.allocation.Run(ctx, allocatedEvery) })
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.store.Changed():
			}
			syncer.FactsChanged()
			timer := time.NewTimer(factsPace)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
	})
}

// trust takes over the trusted namespaces of a reload: the labels of others come
// with the next list.
func (f *podFacts) trust(namespaces []string) {
	f.store.KeepLabels(namespaces)
	if f.kubelet != nil {
		f.kubelet.Relist()
	}
}

// sources tells how current each source is.
func (f *podFacts) sources() []eviction.SourceNow {
	var out []eviction.SourceNow
	for _, s := range f.store.States() {
		out = append(out, eviction.SourceNow{Name: string(s.Source), OK: s.OK, At: s.At, Absent: s.Absent, Error: s.Error})
	}
	a := f.allocation.Status()
	return append(out, eviction.SourceNow{
		Name: eviction.SourceAllocated, OK: a.Present, At: a.Looked, Absent: !a.Present && a.Problem == "", Error: a.Problem,
	})
}

// pod tells what the proxy wants to know of a pod that is new. kubelet is asked
// for one that no source has told of yet.
func (f *podFacts) pod(ctx context.Context, uid string) admin.PodFacts {
	facts, _ := f.store.Pod(uid)
	if facts.Spec == "" && f.kubelet != nil && f.kubeletFeed.State().OK {
		if r, err := f.kubelet.Get(ctx, uid); err == nil {
			f.kubeletFeed.Put(r)
			facts, _ = f.store.Pod(uid)
		}
	}
	return admin.PodFacts{
		Known: facts.Spec != "", Tolerates: facts.Tolerates,
		Critical: facts.Static || facts.Priority.Value >= inventory.SystemCriticalPriority,
	}
}

// askFacts asks the evictor what it knows of a new pod. Without an answer nothing
// is known of it.
func askFacts(socket cri.Endpoint, log logrus.FieldLogger) func(ctx context.Context, uid string) proxy.PodFacts {
	client := admin.NewClient(socket)
	return func(ctx context.Context, uid string) proxy.PodFacts {
		facts, err := client.PodFacts(ctx, uid)
		if err != nil {
			log.WithError(err).WithField("uid", uid).Debug("the evictor does not say what a new pod tolerates")
		}
		return proxy.PodFacts{
			Critical: facts.Critical, ToleratesMemory: facts.Tolerates.MemoryPressure,
			ToleratesDisk: facts.Tolerates.DiskPressure, ToleratesPID: facts.Tolerates.PIDPressure,
		}
	}
}
