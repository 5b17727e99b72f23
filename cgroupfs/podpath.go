package cgroupfs

import (
	"fmt"
	"path"
	"strings"
)

// QoS is a pod's quality of service class, as its place in the tree shows it.
type QoS uint8

const (
	// Guaranteed pods sit directly below kubepods.
	Guaranteed QoS = iota
	// Burstable pods sit below the burstable level.
	Burstable
	// BestEffort pods sit below the besteffort level.
	BestEffort
)

// String is the class as Kubernetes writes it.
func (q QoS) String() string {
	switch q {
	case Guaranteed:
		return "Guaranteed"
	case Burstable:
		return "Burstable"
	case BestEffort:
		return "BestEffort"
	}
	return fmt.Sprintf("QoS(%d)", uint8(q))
}

// level is the name of the directory level of a class.
func (q QoS) level() string {
	switch q {
	case Burstable:
		return "burstable"
	case BestEffort:
		return "besteffort"
	}
	return ""
}

// Driver is who makes the cgroups, and so how they are named.
type Driver uint8

const (
	// Cgroupfs names a pod's directory pod<uid>.
	Cgroupfs Driver = iota
	// Systemd names it kubepods[-qos]-pod<uid with "_" for "-">.slice.
	Systemd
)

// String is the driver as kubelet's configuration writes it.
func (d Driver) String() string {
	if d == Systemd {
		return "systemd"
	}
	return "cgroupfs"
}

// PodPath is what the path of a pod's cgroup says.
type PodPath struct {
	Path   string // below the hierarchy root, clean, with a leading "/"
	UID    string
	QoS    QoS
	Driver Driver
}

// maxPath is the kernel's PATH_MAX; a longer path cannot be opened anyway.
const maxPath = 4096

const (
	kubepods    = "kubepods"
	podPrefix   = "pod"
	sliceSuffix = ".slice"
)

// ParsePodPath takes the path of a cgroup apart. ok is true only when the last
// element carries a pod UID and its parent is kubepods or a QoS level of it,
// under any cgroup root; mixed naming, a QoS level without kubepods above it
// and a pod inside a pod's cgroup (a cluster run in a container) are not pods
// of this node. UIDs are the dashed ones, the 32 hexadecimal digits of static
// pods, and any other of letters, digits, "." and "-".
func ParsePodPath(p string) (PodPath, bool) {
	if !strings.HasPrefix(p, "/") || len(p) > maxPath {
		return PodPath{}, false
	}
	p = path.Clean(p)
	pp, above, ok := parseLeaf(p)
	if !ok {
		return PodPath{}, false
	}
	for above != "/" {
		if _, _, nested := parseLeaf(above); nested {
			return PodPath{}, false
		}
		above = path.Dir(above)
	}
	return pp, true
}

// parseLeaf looks at the last three elements only. above is the directory that
// holds kubepods.
func parseLeaf(p string) (pp PodPath, above string, ok bool) {
	dir, name := path.Split(p)
	dir = path.Clean(dir)
	if strings.HasSuffix(name, sliceSuffix) {
		return parseSlice(p, dir, strings.TrimSuffix(name, sliceSuffix))
	}
	uid, found := strings.CutPrefix(name, podPrefix)
	if !found || !validUID(uid) {
		return PodPath{}, "", false
	}
	qos := Guaranteed
	switch path.Base(dir) {
	case Burstable.level():
		qos = Burstable
	case BestEffort.level():
		qos = BestEffort
	}
	if qos != Guaranteed {
		dir = path.Dir(dir)
	}
	if path.Base(dir) != kubepods {
		return PodPath{}, "", false
	}
	return PodPath{Path: p, UID: uid, QoS: qos, Driver: Cgroupfs}, path.Dir(dir), true
}

// parseSlice handles systemd's names. Each slice repeats the whole chain of
// its parents, so a name fits only below exactly one parent.
func parseSlice(p, dir, name string) (pp PodPath, above string, ok bool) {
	// kubelet writes "_" for each "-" of a UID, so the last "-" ends the chain.
	cut := strings.LastIndexByte(name, '-')
	if cut < 0 {
		return PodPath{}, "", false
	}
	chain := name[:cut]
	escaped, found := strings.CutPrefix(name[cut+1:], podPrefix)
	if !found || strings.IndexByte(escaped, '-') >= 0 {
		return PodPath{}, "", false
	}
	uid := strings.ReplaceAll(escaped, "_", "-")
	if !validUID(uid) || path.Base(dir) != chain+sliceSuffix {
		return PodPath{}, "", false
	}
	qos := Guaranteed
	for _, q := range []QoS{Burstable, BestEffort} {
		if rest, found := strings.CutSuffix(chain, "-"+q.level()); found {
			qos, chain, dir = q, rest, path.Dir(dir)
			break
		}
	}
	if chain != kubepods && !strings.HasSuffix(chain, "-"+kubepods) {
		return PodPath{}, "", false
	}
	if path.Base(dir) != chain+sliceSuffix {
		return PodPath{}, "", false
	}
	return PodPath{Path: p, UID: uid, QoS: qos, Driver: Systemd}, path.Dir(dir), true
}

// validUID accepts [a-zA-Z0-9.-]+ with a letter or digit in it.
func validUID(s string) bool {
	some := false
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			some = true
		case c == '.' || c == '-':
		default:
			return false
		}
	}
	return some
}
