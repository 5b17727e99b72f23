package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
)

const (
	// registriesAsked is how many registries are tried, registryPatience how long.
	registriesAsked  = 16
	registryPatience = 700 * time.Millisecond
)

// checkImages says whether images are collected, and whether one that is removed
// could be pulled again.
func checkImages(ctx context.Context, f *findings, cfg config.Config) {
	const what = "images"
	client, err := cri.Dial(cfg.RuntimeEndpoint)
	if err != nil {
		return // checkRuntime tells
	}
	defer func() { _ = client.Close() }() // only used here
	images, err := client.ListImages(ctx)
	if err != nil {
		f.add(levelWarning, what, "%v: as long as that is so no image is removed", err)
		return
	}
	g := &cfg.ImageGC
	if !g.Configured && !kubeletSeen(ctx, cfg, client) {
		f.add(levelOK, what, "there is no sign of a kubelet here, and none of the keys of image GC is written: no image is removed")
		return
	}
	when := fmt.Sprintf("from %d%% use down to %d%%", g.High, g.Low)
	if g.High >= 100 {
		when = "only when a threshold is met"
	}
	hosts := registriesOf(images)
	if len(hosts) == 0 {
		f.add(levelOK, what, "unused images are removed %s; none is here", when)
		return
	}
	for _, host := range reachable(ctx, hosts) {
		f.add(levelOK, what, "unused images are removed %s, and one registry at least can be reached: %s", when, host)
		return
	}
	f.add(levelWarning, what, "unused images are removed %s, and none of the registries they come from can be reached from here (%s): if the runtime cannot either, a removed image is lost; name in imageAllowList what must stay ([\"*\"]: everything)",
		when, strings.Join(hosts, ", "))
}

// kubeletSeen says whether there is a sign of a kubelet, without the daemon.
func kubeletSeen(ctx context.Context, cfg config.Config, client *cri.Client) bool {
	if cfg.KubeletConfig != "" {
		return true
	}
	if _, err := os.Stat(cfg.PodsAPISocket.Path); err == nil {
		return true
	}
	sandboxes, err := client.ListSandboxes(ctx)
	return err == nil && slices.ContainsFunc(sandboxes, func(s *runtimeapi.PodSandbox) bool {
		_, made := s.GetAnnotations()[configSource]
		return made
	})
}

// registriesOf are the registries that images come from, in order.
func registriesOf(images []*runtimeapi.Image) []string {
	seen := map[string]bool{}
	for _, i := range images {
		for _, name := range append(slices.Clone(i.GetRepoTags()), i.GetRepoDigests()...) {
			if host := cri.ImageRegistry(name); host != "" {
				seen[host] = true
			}
		}
	}
	var out []string
	for host := range seen {
		out = append(out, host)
	}
	slices.Sort(out)
	return out
}

// reachable are those of the registries that take a connection.
func reachable(ctx context.Context, hosts []string) []string {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	ok := make([]bool, min(registriesAsked, len(hosts)))
	var wg sync.WaitGroup
	for i := range ok {
		wg.Go(func() {
			address := hosts[i]
			if _, _, err := net.SplitHostPort(address); err != nil {
				address = net.JoinHostPort(address, "443")
			}
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", address)
			if err != nil {
				return
			}
			ok[i] = conn.Close() == nil
		})
	}
	wg.Wait()
	var out []string
	for i, yes := range ok {
		if yes {
			out = append(out, hosts[i])
		}
	}
	return out
}
