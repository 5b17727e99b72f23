package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/test/conformance/images"
)

// rig is what critest runs against: a registry, a network and a containerd, all
// in the namespaces of this process.
type rig struct {
	programs programs
	dir      string // scratch
	tmp      string // critest's TMPDIR
	out      string // logs and reports
	seed     int64
	focus    string

	registry *http.Server
	ctd      *lab.Containerd
	daemon   *daemon
}

// set starts everything but cri-evictd.
func (r *rig) set(ctx context.Context) error {
	if err := settle(); err != nil {
		return err
	}
	r.tmp = filepath.Join(r.dir, "tmp")
	for _, dir := range []string{r.tmp, r.out, r.networks(), r.registries(), r.bin()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(r.tmp, 0o1777); err != nil { // as /tmp is
		return err
	}
	address, err := r.serveImages(ctx)
	if err != nil {
		return err
	}
	if err := r.writeFiles(address); err != nil {
		return err
	}
	r.ctd, err = lab.StartContainerd(ctx, lab.ContainerdOptions{
		Tools: r.programs.Tools, Version: lab.Current, Dir: r.dir, Log: os.Stdout,
		CRI: &lab.CRIOptions{
			CNIPlugins: filepath.Join(r.programs.Debian, "usr/lib/cni"), CNIConfig: r.networks(),
			Registries: r.registries(), Path: []string{r.bin()}, NRI: true,
		},
	})
	return err
}

func (r *rig) networks() string   { return filepath.Join(r.dir, "net.d") }
func (r *rig) registries() string { return filepath.Join(r.dir, "registries") }
func (r *rig) bin() string        { return filepath.Join(r.dir, "bin") }

// serveImages makes critest's images and serves them on loopback.
func (r *rig) serveImages(ctx context.Context) (address string, err error) {
	busybox, err := images.ReadBusybox(r.programs.Debian)
	if err != nil {
		return "", err
	}
	guest, err := os.ReadFile(r.programs.Guest)
	if err != nil {
		return "", err
	}
	applets, err := exec.CommandContext(ctx, filepath.Join(r.programs.Debian, "bin/busybox"), "--list").Output()
	if err != nil {
		return "", fmt.Errorf("busybox --list: %w", err)
	}
	commands := []string{}
	for _, a := range strings.Fields(string(applets)) {
		if a != "busybox" {
			commands = append(commands, a)
		}
	}
	registry, err := images.ForCritest(images.Programs{Busybox: busybox, Guest: guest, Commands: commands})
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.registry = &http.Server{Handler: registry, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.registry.Serve(listener) }() // until close
	return listener.Addr().String(), nil
}

// writeFiles writes what containerd and the CNI plugins read.
func (r *rig) writeFiles(registry string) error {
	hosts := fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", registry)
	network := fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "conformance",
  "plugins": [
    {"type": "bridge", "bridge": "conformance0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
     "ipam": {"type": "host-local", "dataDir": %q,
              "ranges": [[{"subnet": "10.211.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, filepath.Join(r.dir, "ipam"))
	// iptables from the cache: its libraries and extensions are there, too.
	iptables := fmt.Sprintf(`#!/bin/sh
set -- "${0##*/}" "$@"
for dir in %[1]s/usr/lib/*/xtables; do
  export XTABLES_LIBDIR="$dir" LD_LIBRARY_PATH="${dir%%/xtables}"
done
exec %[1]s/usr/sbin/xtables-nft-multi "$@"
`, r.programs.Debian)
	everything := filepath.Join(r.registries(), "_default")
	return errors.Join(
		os.Mkdir(everything, 0o755),
		os.WriteFile(filepath.Join(everything, "hosts.toml"), []byte(hosts), 0o644),
		os.WriteFile(filepath.Join(r.networks(), "10-conformance.conflist"), []byte(network), 0o644),
		os.WriteFile(filepath.Join(r.bin(), "iptables"), []byte(iptables), 0o755),
		os.WriteFile(filepath.Join(r.bin(), "ip6tables"), []byte(iptables), 0o755),
	)
}

// reset removes pods and images, so that the next run finds what the first found.
func (r *rig) reset(ctx context.Context) error {
	conn, err := r.ctd.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // only used here
	rt := runtimeapi.NewRuntimeServiceClient(conn)
	pods, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if err := lab.RemovePod(ctx, rt, p.Id); err != nil {
			return err
		}
	}
	store := runtimeapi.NewImageServiceClient(conn)
	list, err := store.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return err
	}
	for _, img := range list.Images {
		if img.Pinned || len(img.RepoTags) > 0 && strings.HasPrefix(img.RepoTags[0], "lab.invalid/") {
			continue
		}
		if _, err := store.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: img.Id}}); err != nil {
			return err
		}
	}
	return nil
}

// takeDown ends everything and returns what could not be removed.
func (r *rig) takeDown() []string {
	var left []string
	note := func(err error) {
		if err != nil {
			left = append(left, err.Error())
		}
	}
	if r.daemon != nil {
		note(r.daemon.stop())
	}
	if r.ctd != nil {
		note(copyFile(filepath.Join(r.out, "containerd.log"), r.ctd.LogFile))
		note(r.ctd.Cleanup())
		left = append(left, r.ctd.Leftovers()...)
	}
	if r.registry != nil {
		note(r.registry.Close())
	}
	return left
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // read only
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
