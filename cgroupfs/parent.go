package cgroupfs

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/cgroups/systemd"
)

// errParent refuses a cgroup parent that names nothing.
var errParent = errors.New("cgroup parent is empty, relative or the root")

// ResolveParent turns the linux.cgroup_parent of a CRI request into the path
// below the hierarchy root. A plain path stays as it is. For a name that ends
// in ".slice" only the last element counts and is expanded to its chain of
// slices: that is what containerd and CRI-O hand to systemd.
func ResolveParent(cgroupParent string) (string, error) {
	base := path.Base(cgroupParent)
	if strings.HasSuffix(base, sliceSuffix) {
		p, err := systemd.ExpandSlice(base)
		if err != nil {
			return "", fmt.Errorf("cgroup parent %q: %w", cut(cgroupParent), err)
		}
		if p == "/" {
			return "", fmt.Errorf("cgroup parent %q: %w", cut(cgroupParent), errParent)
		}
		return p, nil
	}
	// Clean takes the ".." away before anything is joined to the root.
	p := path.Clean(cgroupParent)
	if !strings.HasPrefix(p, "/") || p == "/" {
		return "", fmt.Errorf("cgroup parent %q: %w", cut(cgroupParent), errParent)
	}
	return p, nil
}

// cut bounds a text from outside for an error message.
func cut(s string) string {
	if len(s) > 4*maxQuoted {
		return s[:4*maxQuoted]
	}
	return s
}
