package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ensureDebian unpacks Debian's containerd and runc packages into the cache.
// Installing them instead could replace another vendor's containerd and would
// start a service.
func ensureDebian(ctx context.Context, c cache) (string, error) {
	want := []string{"usr/bin/containerd", "usr/bin/containerd-shim-runc-v2", "usr/bin/ctr", "usr/sbin/runc"}
	return c.debian(ctx, "deb", want, "containerd", "runc")
}

// debian returns the unit that holds these packages, unpacked.
func (c cache) debian(ctx context.Context, prefix string, want []string, packages ...string) (string, error) {
	name := prefix + "-" + hostRelease() + "-" + runtime.GOARCH
	return c.unit(ctx, name, want, func(ctx context.Context, dir string) error {
		for _, tool := range []string{"apt-get", "dpkg"} {
			if _, err := exec.LookPath(tool); err != nil {
				return fmt.Errorf("%w: %s come from Debian's packages, which needs apt-get and dpkg (Debian or Ubuntu); %s is not in PATH",
					ErrUnsupported, strings.Join(packages, ", "), tool)
			}
		}
		debs, err := aptDownload(ctx, c, dir, packages...)
		if err != nil {
			return err
		}
		for _, deb := range debs {
			if out, err := exec.CommandContext(ctx, "dpkg", "-x", deb, dir).CombinedOutput(); err != nil {
				return fmt.Errorf("dpkg -x %s: %w\n%s", filepath.Base(deb), err, lastLines(out, 5))
			}
			fmt.Fprintf(c.log, "lab: unpacked %s\n", filepath.Base(deb))
		}
		return os.RemoveAll(filepath.Join(dir, aptDir))
	})
}

// aptDir is where apt works, below the unit; it is removed at the end.
const aptDir = ".apt"

// aptDownload fetches packages and returns the files, all in aptDir below dir.
func aptDownload(ctx context.Context, c cache, dir string, packages ...string) ([]string, error) {
	work := filepath.Join(dir, aptDir)
	// Lists of our own, for hosts where `apt-get update` never ran or whose
	// lists are older than the mirror. The host's are left as they are.
	lists, archives := filepath.Join(work, "lists"), filepath.Join(work, "cache")
	own := []string{"-o", "Dir::State::Lists=" + lists, "-o", "Dir::Cache=" + archives}
	for _, d := range []string{filepath.Join(lists, "partial"), filepath.Join(archives, "archives/partial")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}

	// Without this apt, as root, warns that its own user cannot write here.
	opts := []string{"-q", "-o", "APT::Sandbox::User="}
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", append(slices.Clone(opts), args...)...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, lastLines(out, 5))
		}
		return nil
	}

	download := append([]string{"download"}, packages...)
	if first := run(download...); first != nil {
		if ctx.Err() != nil {
			return nil, first
		}
		fmt.Fprintf(c.log, "lab: the host's package lists do not do (%s); reading the mirror's\n", firstLine(first.Error()))
		if err := run(append(slices.Clone(own), "update")...); err != nil {
			return nil, errors.Join(first, err)
		}
		if err := run(append(slices.Clone(own), download...)...); err != nil {
			return nil, errors.Join(first, err)
		}
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return nil, err
	}
	if len(debs) != len(packages) {
		return nil, fmt.Errorf("apt-get download: %d files for %d packages: %q", len(debs), len(packages), debs)
	}
	return debs, nil
}

// releaseName turns /etc/os-release into a word for a file name, "debian12".
func releaseName(osRelease string) string {
	var id, version string
	for line := range strings.Lines(osRelease) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(value, `"'`); key {
		case "ID":
			id = value
		case "VERSION_ID":
			version = value
		}
	}
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_':
			return r
		}
		return -1
	}, strings.ToLower(id+version))
	if clean == "" {
		return "unknown"
	}
	return clean
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
