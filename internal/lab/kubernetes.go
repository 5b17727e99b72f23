package lab

import (
	"context"
	"fmt"
	"io"
	"strings"
)

const (
	// Kubernetes is the Kubernetes whose kubelet has the Pods API on by default.
	Kubernetes = "1.37.2"
	// KubernetesOld is one whose kubelet has no Pods API.
	KubernetesOld = "1.34.4"

	etcdModule = "go.etcd.io/etcd/server/v3"
	etcdTag    = "v3.7.3"
)

// KubernetesTools are absolute paths of the programs of a cluster of one node.
// All lie in the cache.
type KubernetesTools struct {
	Version                  string
	Kubelet, APIServer, Etcd string
}

// EnsureKubernetes returns kubelet and kube-apiserver of a version such as
// "1.37.2", and etcd, and builds what is missing from Go modules: on two CPUs
// 230, 140 and 18 s the first time. Otherwise as Ensure.
func EnsureKubernetes(ctx context.Context, log io.Writer, version string) (KubernetesTools, error) {
	t := KubernetesTools{Version: version}
	c, err := openCache(log)
	if err != nil {
		return t, err
	}
	etcd := goModule{path: etcdModule, version: etcdTag, local: etcdTag}
	if t.Etcd, err = etcd.build(ctx, c, "etcd", etcdModule, ""); err != nil {
		return t, err
	}
	if t.APIServer, err = ensureKubernetesCommand(ctx, c, version, "kube-apiserver"); err != nil {
		return t, err
	}
	t.Kubelet, err = ensureKubernetesCommand(ctx, c, version, "kubelet")
	return t, err
}

// EnsureKubelet is EnsureKubernetes for kubelet alone: it runs static pods
// without a cluster, and works with the API server of a newer version.
func EnsureKubelet(ctx context.Context, log io.Writer, version string) (string, error) {
	c, err := openCache(log)
	if err != nil {
		return "", err
	}
	return ensureKubernetesCommand(ctx, c, version, "kubelet")
}

// KubernetesProgram builds a program of the caller's from source, a package main
// of one file that may import packages of k8s.io/kubernetes of this version:
// what kubelet computes, computed by its own code.
func KubernetesProgram(ctx context.Context, log io.Writer, version, name, source string) (string, error) {
	c, err := openCache(log)
	if err != nil {
		return "", err
	}
	m, err := kubernetesModule(version)
	if err != nil {
		return "", err
	}
	return m.build(ctx, c, name, "", source)
}

func ensureKubernetesCommand(ctx context.Context, c cache, version, command string) (string, error) {
	m, err := kubernetesModule(version)
	if err != nil {
		return "", err
	}
	return m.build(ctx, c, command, m.path+"/cmd/"+command, "")
}

// kubernetesModule is Kubernetes 1.x.y; its staging modules are published as
// v0.x.y.
func kubernetesModule(version string) (goModule, error) {
	minor, ok := strings.CutPrefix(version, "1.")
	if !ok || strings.Count(minor, ".") != 1 {
		return goModule{}, fmt.Errorf("lab: Kubernetes %q: want a version such as %q", version, Kubernetes)
	}
	return goModule{path: "k8s.io/kubernetes", version: "v" + version, local: "v0." + minor}, nil
}
