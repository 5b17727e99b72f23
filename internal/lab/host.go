package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// containerdMajor asks the binary for its major version: the configuration
// differs, and what Debian's package holds depends on the Debian.
func containerdMajor(ctx context.Context, path string) (int, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("lab: %s --version: %w", path, err)
	}
	return parseMajor(string(out))
}

// parseMajor reads "containerd MODULE VERSION REVISION".
func parseMajor(out string) (int, error) {
	fields := strings.Fields(out)
	if len(fields) < 3 {
		return 0, fmt.Errorf("lab: containerd --version: %q has no version", out)
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(fields[2], "v"), ".")
	major, err := strconv.Atoi(number)
	if err != nil || major < 1 || major > 2 {
		return 0, fmt.Errorf("lab: containerd --version: %q is not a version this lab knows (1.x, 2.x)", fields[2])
	}
	return major, nil
}

// snapshotterFor returns "native" where dir is on overlayfs itself, as inside
// a container: overlayfs refuses an upper layer there.
func snapshotterFor(dir string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", fmt.Errorf("lab: statfs %s: %w", dir, err)
	}
	if st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native", nil
	}
	return "overlayfs", nil
}

// lacksSysResource is true where even root may not lower an oom_score_adj:
// without restrict_oom_score_adj no sandbox would start there.
func lacksSysResource() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, fmt.Errorf("lab: %w", err)
	}
	caps, err := parseCapEff(status)
	if err != nil {
		return false, err
	}
	return caps&(1<<unix.CAP_SYS_RESOURCE) == 0, nil
}

func parseCapEff(status []byte) (uint64, error) {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte("CapEff:")); ok {
			caps, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("lab: /proc/self/status: CapEff: %w", err)
			}
			return caps, nil
		}
	}
	return 0, fmt.Errorf("lab: /proc/self/status: no CapEff")
}
