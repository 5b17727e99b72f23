package cgroupfs

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/cgroups/systemd"
)

// errParent refuses a cgroup that cannot be a pod's or a container's.
var errParent = errors.New("empty, relative or the root")

// errParentText refuses a text that cannot be a path at all.
var errParentText = errors.New("longer than 4096 bytes or with a zero byte")

// ResolveParent turns the linux.cgroup_parent of a CRI request into the path
// below the hierarchy root. A plain path stays as it is. For a name that ends
// in ".slice" only the last element counts and is expanded to its chain of
// slices: that is what containerd and CRI-O hand to systemd.
func ResolveParent(cgroupParent string) (string, error) {
	if len(cgroupParent) > maxPath || strings.IndexByte(cgroupParent, 0) >= 0 {
		return "", fmt.Errorf("cgroup parent %q: %w", cut(cgroupParent), errParentText)
	}
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
