package lab

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// criNamespace is containerd's namespace for everything CRI made.
const criNamespace = "k8s.io"

// shimSocketRoot is where 1.6's shims listen, whatever the configuration says.
const shimSocketRoot = "/run/containerd/s"

// traces are what a containerd has made outside its own directory, as far as
// its directory tells. They are read from files only, so that they are there
// too when containerd was killed or its owner is gone.
type traces struct {
	uids      map[string]bool            // pods it ran a sandbox for
	parents   map[string]map[string]bool // cgroup parent (path) → container IDs in it
	slices    map[string]bool            // systemd slices
	sandboxes map[string]bool            // sandbox IDs: their shims have a socket
	sockets   map[string]bool            // shim socket paths
}

func (t *traces) init() {
	if t.uids == nil {
		*t = traces{
			uids: map[string]bool{}, parents: map[string]map[string]bool{}, slices: map[string]bool{},
			sandboxes: map[string]bool{}, sockets: map[string]bool{},
		}
	}
}

// collect adds what l's directory tells now: a sandbox that is stopped and
// removed later takes its bundle with it. What is unreadable is left out.
func (t *traces) collect(l layout) {
	t.init()
	if log, err := os.ReadFile(l.log()); err == nil {
		t.addLog(log)
	}
	// Each task has a bundle: <state>/io.containerd.runtime.v2.task/<namespace>/<id>.
	bundles, err := filepath.Glob(filepath.Join(l.state(), "io.containerd.runtime.v2.task", criNamespace, "*"))
	if err != nil {
		bundles = nil // only for a malformed pattern
	}
	for _, bundle := range bundles {
		id := filepath.Base(bundle)
		if config, err := os.ReadFile(filepath.Join(bundle, "config.json")); err == nil {
			t.addSpec(id, config)
		}
		if address, err := os.ReadFile(filepath.Join(bundle, "address")); err == nil { // 1.6
			t.addSocket(string(address))
		}
		t.sandboxes[id] = true
	}
	for id := range t.sandboxes {
		t.sockets[shimSocket(l.socket(), id)] = true
	}
}

// shimSocket is where the shim of a sandbox listens (containerd's
// pkg/shim/util_unix.go, SocketAddress).
func shimSocket(address, id string) string {
	sum := sha256.Sum256([]byte(path.Join(address, criNamespace, id)))
	return path.Join(shimSocketRoot, hex.EncodeToString(sum[:]))
}

// addSocket takes an address file; anything but a shim socket is left alone.
func (t *traces) addSocket(address string) {
	p := strings.TrimPrefix(strings.TrimSpace(address), "unix://")
	if path.Dir(p) == shimSocketRoot && path.Clean(p) == p {
		t.sockets[p] = true
	}
}

// addSpec takes the cgroup of an OCI runtime spec.
func (t *traces) addSpec(id string, config []byte) {
	var spec struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		} `json:"linux"`
	}
	if err := json.Unmarshal(config, &spec); err != nil {
		return // cut off by a SIGKILL; the log knows the pod too
	}
	parent, kind := splitCgroupsPath(spec.Linux.CgroupsPath)
	switch kind {
	case slice:
		t.slices[parent] = true
	case plain:
		t.addCgroup(parent, id)
	case unknown:
	}
}

func (t *traces) addCgroup(parent, id string) {
	if t.parents[parent] == nil {
		t.parents[parent] = map[string]bool{}
	}
	t.parents[parent][id] = true
}

type cgroupsPathKind uint8

const (
	unknown cgroupsPathKind = iota
	plain                   // cgroupfs driver: /parent/id
	slice                   // systemd driver: parent.slice:prefix:id
)

// splitCgroupsPath returns the parent of a spec's linux.cgroupsPath.
func splitCgroupsPath(p string) (parent string, kind cgroupsPathKind) {
	if name, _, ok := strings.Cut(p, ":"); ok {
		if strings.HasSuffix(name, ".slice") && !strings.Contains(name, "/") {
			return name, slice
		}
		return "", unknown
	}
	if !path.IsAbs(p) {
		return "", unknown
	}
	parent = path.Dir(path.Clean(p))
	if parent == "/" {
		return "", unknown
	}
	return parent, plain
}

// addLog takes pods and sandboxes from containerd's log; it is the only place
// that still knows those which were removed since. 1.6 and 2.4 write
//
//	msg="RunPodSandbox for &PodSandboxMetadata{Name:a,Uid:b,Namespace:c,Attempt:0,} returns sandbox id \"d\""
//	msg="RunPodSandbox for name:\"a\"  uid:\"b\"  namespace:\"c\" returns sandbox id \"d\""
//
// What was still being made when containerd ended is in no bundle any more;
// only 2.4 tells its ID, for which the cgroup is named without a cgroup parent:
//
//	msg="connecting to shim d" address=…
func (t *traces) addLog(log []byte) {
	uids := []*regexp.Regexp{
		regexp.MustCompile(`PodSandboxMetadata\{Name:[^,]*,Uid:([^,}]+),`),
		regexp.MustCompile(`\buid:\\?"([^"\\]+)\\?"`),
	}
	id := regexp.MustCompile(`returns sandbox id \\?"([0-9a-f]{64})\\?"`)
	shim := regexp.MustCompile(`msg="connecting to shim ([0-9a-f]{64})"`)
	for line := range bytes.Lines(log) {
		if m := shim.FindSubmatch(line); m != nil {
			t.addCgroup("/"+criNamespace, string(m[1]))
		}
		if !bytes.Contains(line, []byte("RunPodSandbox for ")) {
			continue
		}
		for _, uid := range uids {
			if m := uid.FindSubmatch(line); m != nil {
				t.uids[string(m[1])] = true
			}
		}
		if m := id.FindSubmatch(line); m != nil {
			t.sandboxes[string(m[1])] = true
		}
	}
}

// owns is true for the name of a pod cgroup of one of our pods.
func (t *traces) owns(name string) bool {
	if name, ok := strings.CutSuffix(name, ".slice"); ok {
		_, uid, ok := strings.Cut(name, "-pod")
		return ok && slices.ContainsFunc(keys(t.uids), func(u string) bool {
			return strings.ReplaceAll(u, "-", "_") == uid
		})
	}
	uid, ok := strings.CutPrefix(name, "pod")
	return ok && t.uids[uid]
}

func keys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
