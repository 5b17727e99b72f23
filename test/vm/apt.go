package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// codename is the host's Debian release, "bookworm".
func codename() (string, error) {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok && v != "" {
			return strings.Trim(v, `"`), nil
		}
	}
	return "", errors.New("/etc/os-release has no VERSION_CODENAME: the machine is made of Debian's packages")
}

// aptSource returns where a suite comes from: the host's own file if it has the
// suite, so that whatever mirror works here is used, else that file's mirror with
// the other suite.
func aptSource(suite, host string) (string, error) {
	var files []string
	for _, pattern := range []string{"/etc/apt/sources.list.d/*.sources", "/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		uri := mirror(string(b), host)
		switch {
		case uri == "":
			continue
		case suite == host:
			return f, nil
		}
		return fmt.Sprintf("deb %s %s main", uri, suite), nil
	}
	return "", fmt.Errorf("no apt source for %s in /etc/apt", host)
}

// mirror returns the address of a suite in an apt source file of either format,
// "" if it is not there.
func mirror(file, suite string) string {
	oneLine := regexp.MustCompile(`^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s`)
	for stanza := range strings.SplitSeq(file, "\n\n") {
		var uri string
		var has bool
		for line := range strings.Lines(stanza) {
			if m := oneLine.FindStringSubmatch(line); m != nil && m[2] == suite {
				return m[1]
			}
			key, value, _ := strings.Cut(line, ":")
			switch words := strings.Fields(value); {
			case len(words) == 0:
			case strings.EqualFold(key, "URIs"):
				uri = words[0]
			case strings.EqualFold(key, "Suites"):
				for _, w := range words {
					has = has || w == suite
				}
			}
		}
		if has && uri != "" {
			return uri
		}
	}
	return ""
}

// hostTools installs what building the machine needs and this host lacks.
func hostTools(ctx context.Context, log io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: the machine's root file system is made here, and folders are shared with it as they are")
	}
	var missing []string
	for command, pkg := range map[string]string{"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "xz": "xz-utils"} {
		if _, err := exec.LookPath(command); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return aptInstall(ctx, log, missing...)
}

func aptInstall(ctx context.Context, log io.Writer, packages ...string) error {
	fmt.Fprintf(log, "vm: installing %s on this host\n", strings.Join(packages, ", "))
	for _, args := range [][]string{
		{"apt-get", "-qq", "update"},
		append([]string{"apt-get", "-qq", "install", "-y", "--no-install-recommends"}, packages...),
	} {
		if err := quietly(ctx, []string{"DEBIAN_FRONTEND=noninteractive"}, args...); err != nil {
			return err
		}
	}
	return nil
}

// debootstrap fills dir with packages of a suite: unpacked only, or installed with
// what every Debian has.
func debootstrap(ctx context.Context, dir, suite, source string, install bool, packages []string) error {
	variant := "extract"
	if install {
		variant = "minbase"
	}
	// It mounts /proc, /sys and devices into dir. In a mount namespace of its own
	// they are gone when it is killed, before anybody removes dir.
	args := []string{"unshare", "--mount", "mmdebstrap", "--variant=" + variant, "--include=" + strings.Join(packages, ",")}
	for _, p := range []string{"man", "doc", "locale", "info", "lintian"} {
		args = append(args, "--dpkgopt=path-exclude=/usr/share/"+p+"/*")
	}
	for _, o := range proxies(ctx) {
		args = append(args, "--aptopt="+o)
	}
	return quietly(ctx, []string{"LC_ALL=C"}, append(args, suite, dir, source)...)
}

// proxies are the host's apt settings that mmdebstrap's own apt has to know.
func proxies(ctx context.Context) []string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return nil // no apt: what follows says so
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if key, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(key, "Acquire::http") && strings.Contains(key, "Proxy") {
			found = append(found, strings.TrimSuffix(strings.TrimSpace(line), ";"))
		}
	}
	return found
}

// quietly runs a command and shows its output only in an error.
func quietly(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	// mmdebstrap unmounts what it has mounted if it is asked to end.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, lastLines(out, 15))
	}
	return nil
}

// lastLines cuts text for a message.
func lastLines(b []byte, n int) []byte {
	b = bytes.TrimSpace(b)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == '\n' {
			if n--; n == 0 {
				return b[i+1:]
			}
		}
	}
	return b
}
