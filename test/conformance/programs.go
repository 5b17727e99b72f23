package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const (
	critestPackage = "sigs.k8s.io/cri-tools/cmd/critest"
	runcPackage    = "github.com/opencontainers/runc"
	runcTag        = "v1.4.4"
)

// programs are the paths of everything a run needs. All but the guest lie in
// the lab's cache.
type programs struct {
	Tools   lab.Tools // containerd 2.4 and a runc that can do user namespaces
	Critest string
	Debian  string // folder of unpacked packages: CNI plugins, iptables, busybox
	Guest   string // test/conformance/guest
	Binary  string // the cri-evictd to put in between
}

// ensure gets what is missing. It needs the host's network.
func ensure(ctx context.Context, log io.Writer, module, dir string) (programs, error) {
	var p programs
	var err error
	if p.Tools, err = lab.EnsureRuntime(ctx, log, lab.Current); err != nil {
		return p, err
	}
	p.Debian, err = lab.DebianPackages(ctx, log, "conformance",
		[]string{"bin/busybox", "usr/lib/cni/bridge", "usr/lib/cni/portmap", "usr/lib/cni/host-local", "usr/lib/cni/loopback", "usr/sbin/xtables-nft-multi"},
		"busybox", "libc6", // for the images
		"containernetworking-plugins",
		"iptables", "libip4tc2", "libip6tc2", "libmnl0", "libnetfilter-conntrack3", "libnfnetlink0", "libnftnl11", "libxtables12",
		"libseccomp-dev") // for runc
	if err != nil {
		return p, err
	}
	if p.Critest, err = ensureCritest(ctx, log, module); err != nil {
		return p, err
	}
	if p.Tools.Runc, err = ensureRunc(ctx, log, p.Debian); err != nil {
		return p, err
	}
	p.Guest = filepath.Join(dir, "guest")
	return p, lab.RunGo(ctx, ".", nil, "build", "-trimpath", "-ldflags=-s -w", "-o", p.Guest, "./test/conformance/guest")
}

// ensureCritest builds critest, which is a test program, from the module that
// pins it.
func ensureCritest(ctx context.Context, log io.Writer, module string) (string, error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("critest's module: %w", err)
	}
	m := regexp.MustCompile(`sigs\.k8s\.io/cri-tools (v\S+)`).FindSubmatch(mod)
	if m == nil {
		return "", fmt.Errorf("%s/go.mod does not require sigs.k8s.io/cri-tools", module)
	}
	sum := sha256.Sum256(mod) // a dependency may change alone
	name := fmt.Sprintf("critest-%s-%s", m[1], hex.EncodeToString(sum[:4]))
	dir, err := lab.Cached(ctx, log, name, []string{"critest"}, func(ctx context.Context, dir string) error {
		return lab.RunGo(ctx, module, nil, "test", "-c", "-ldflags=-s -w", "-o", filepath.Join(dir, "critest"), critestPackage)
	})
	return filepath.Join(dir, "critest"), err
}

// ensureRunc builds runc with seccomp. Debian's 1.1.5 has no idmapped mounts,
// and a `go install`ed one no seccomp: either way specs would skip or fail.
func ensureRunc(ctx context.Context, log io.Writer, debian string) (string, error) {
	dir, err := lab.Cached(ctx, log, "runc-"+runcTag+"-seccomp", []string{"runc"}, func(ctx context.Context, dir string) error {
		if err := ensureCompiler(ctx, log); err != nil {
			return err
		}
		archives, err := filepath.Glob(filepath.Join(debian, "usr/lib/*/libseccomp.a"))
		if err != nil || len(archives) != 1 {
			return fmt.Errorf("libseccomp-dev has no libseccomp.a: %q", archives)
		}
		// In place of pkg-config, which would name the host's folders. The
		// archive is linked: the package's .so is a link into another package.
		script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in\n*--cflags*) echo -I%s ;;\n*--libs*) echo -L%s -l:libseccomp.a ;;\nesac\n",
			filepath.Join(debian, "usr/include"), filepath.Dir(archives[0]))
		pkgConfig := filepath.Join(dir, "pkg-config")
		if err := os.WriteFile(pkgConfig, []byte(script), 0o700); err != nil {
			return err
		}
		return lab.RunGo(ctx, dir, []string{"GOBIN=" + dir, "CGO_ENABLED=1", "PKG_CONFIG=" + pkgConfig},
			"install", "-tags=seccomp", "-ldflags=-s -w -X main.version="+strings.TrimPrefix(runcTag, "v"), runcPackage+"@"+runcTag)
	})
	return filepath.Join(dir, "runc"), err
}

// ensureCompiler installs Debian's C compiler if there is none. It is the only
// thing that is installed.
func ensureCompiler(ctx context.Context, log io.Writer) error {
	if _, err := exec.LookPath("gcc"); err == nil {
		return nil
	}
	for _, args := range [][]string{{"update", "-q"}, {"install", "-q", "-y", "--no-install-recommends", "gcc", "libc6-dev"}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("runc is built with gcc, which is not there: apt-get %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}
