package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
)

// Version selects which containerd a lab runs.
type Version string

const (
	// Debian is the containerd of Debian's package, called "1.6" after
	// Debian 12. A newer Debian has a newer one; see Tools.Major.
	Debian Version = "1.6"
	// Current is containerd 2.4, built from its Go module.
	Current Version = "2.4"
)

const (
	containerdModule = "github.com/containerd/containerd/v2"
	containerdTag    = "v2.4.2"
	crictlPackage    = "sigs.k8s.io/cri-tools/cmd/crictl"
	crictlTag        = "v1.37.0"
)

// ErrUnsupported means that this host cannot provide what a lab needs; the
// message says what is missing.
var ErrUnsupported = errors.New("not possible on this host")

// Versions returns every version a lab can run, oldest first.
func Versions() []Version { return []Version{Debian, Current} }

// Tools are absolute paths of the programs a lab runs. All lie in the cache.
type Tools struct {
	Containerd, Shim, Ctr, Runc, Crictl string
	// Workload is the static binary both images are made of.
	Workload string
}

// Ensure returns the programs for v, and puts the missing ones into the cache:
// $CRI_EVICTD_CACHE, else cri-evictd in the user's cache folder, else
// /var/cache/cri-evictd. Several processes may call it at once: one builds,
// the others wait. What it does and how many seconds that took goes to log.
//
// runc is Debian's for every version: one built with `go install` has no
// seccomp and refuses every pod that asks for a profile.
//
// errors.Is(err, ErrUnsupported) when the host lacks something.
func Ensure(ctx context.Context, log io.Writer, v Version) (Tools, error) {
	t, err := EnsureRuntime(ctx, log, v)
	if err != nil {
		return Tools{}, err
	}
	root, err := cacheRoot()
	if err != nil {
		return Tools{}, err
	}
	dir, err := ensureGo(ctx, cache{root: root, log: log}, "crictl-"+crictlTag, crictlTag, crictlPackage)
	if err != nil {
		return Tools{}, err
	}
	t.Crictl = filepath.Join(dir, "crictl")
	return t, nil
}

// EnsureRuntime is Ensure without crictl, which takes a minute to build the
// first time and is not needed to run pods: Tools.Crictl stays empty.
func EnsureRuntime(ctx context.Context, log io.Writer, v Version) (Tools, error) {
	if !slices.Contains(Versions(), v) {
		return Tools{}, fmt.Errorf("lab: version %q is not known: use one of %q", v, Versions())
	}
	root, err := cacheRoot()
	if err != nil {
		return Tools{}, err
	}
	c := cache{root: root, log: log}
	deb, err := ensureDebian(ctx, c)
	if err != nil {
		return Tools{}, err
	}
	bin := filepath.Join(deb, "usr/bin")
	if v == Current {
		bin, err = ensureGo(ctx, c, "containerd-"+containerdTag, containerdTag,
			containerdModule+"/cmd/containerd",
			containerdModule+"/cmd/containerd-shim-runc-v2",
			containerdModule+"/cmd/ctr")
		if err != nil {
			return Tools{}, err
		}
	}
	workload, err := ensureWorkload(ctx, c)
	if err != nil {
		return Tools{}, err
	}
	return Tools{
		Containerd: filepath.Join(bin, "containerd"),
		Shim:       filepath.Join(bin, "containerd-shim-runc-v2"),
		Ctr:        filepath.Join(bin, "ctr"),
		Runc:       filepath.Join(deb, "usr/sbin/runc"),
		Workload:   workload,
	}, nil
}
