package diskusage

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// Places says where kubelet keeps what belongs to pods.
type Places struct {
	// KubeletRoot is kubelet's --root-dir, LogsDir its podLogsDir.
	KubeletRoot, LogsDir string
	// Proc is where procfs is mounted, ProjectsFile where kubelet notes quota
	// projects (/etc/projects); empty leaves out what needs it.
	Proc, ProjectsFile string
}

func (p Places) pods() string { return filepath.Join(p.KubeletRoot, "pods") }

// emptyDirs is the directory kubelet keeps a pod's emptyDirs in, below the
// pod's own.
var emptyDirs = []string{"volumes", "kubernetes.io~empty-dir"}

func (r *root) path() string {
	return filepath.Join(append([]string{r.base}, r.below...)...)
}

// component says whether a word from outside can be one name in a path.
func component(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

// fixed are the roots of a pod whose names are known (kubelet 1.37:
// kubelet_getters.go, kuberuntime/helpers.go BuildPodLogsDirectory).
func (p Places) fixed(r inventory.Ref) []root {
	var out []root
	if logs := r.Namespace + "_" + r.Name + "_" + r.UID; p.LogsDir != "" && component(logs) {
		out = append(out, root{kind: Logs, base: p.LogsDir, below: []string{logs}})
	}
	if p.KubeletRoot == "" || !component(r.UID) {
		return out
	}
	return append(out,
		root{kind: EtcHosts, base: p.pods(), below: []string{r.UID, "etc-hosts"}},
		root{kind: TerminationLog, base: p.pods(), below: []string{r.UID, "containers"}},
	)
}

// maxVolumes is how many emptyDirs of a pod are looked for.
const maxVolumes = 1024

// volumes are the roots of the emptyDirs a pod has now. Only kubelet makes
// names there.
func (p Places) volumes(o *opener, uid string) ([]root, error) {
	if p.KubeletRoot == "" || !component(uid) {
		return nil, nil
	}
	below := append([]string{uid}, emptyDirs...)
	fd, err := o.below(p.pods(), below)
	if err != nil {
		if vanished(err) {
			return nil, nil
		}
		return nil, err
	}
	defer shut(fd)
	var out []root
	var buf [chunk]byte
	for {
		n, err := getdents(fd, buf[:])
		if err != nil {
			return out, err
		}
		if n == 0 {
			return out, nil
		}
		for b := buf[:n]; len(b) > 0; {
			var d dirent
			if d, b, err = nextDirent(b); err != nil {
				return out, err
			}
			if d.dots() || len(out) >= maxVolumes {
				continue
			}
			name := string(d.text())
			out = append(out, root{kind: EmptyDir, name: name, base: p.pods(), below: append(slices.Clip(below), name)})
		}
	}
}
