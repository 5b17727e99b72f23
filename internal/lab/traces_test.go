package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSplitCgroupsPath(t *testing.T) {
	tests := []struct {
		path, parent string
		kind         cgroupsPathKind
	}{
		{"/kubepods/burstable/podu/c1", "/kubepods/burstable/podu", plain},
		{"/kubepods/c1", "/kubepods", plain},
		{"kubepods-burstable-podu_1.slice:cri-containerd:c1", "kubepods-burstable-podu_1.slice", slice},
		{"/c1", "", unknown}, // its parent is the root: nothing to remove
		{"/", "", unknown},
		{"", "", unknown},
		{"relative/c1", "", unknown},
		{"/../../c1", "", unknown},
		{"/a.slice/b.slice:x:y", "", unknown},
		{"podu:x:y", "", unknown},
	}
	for _, tt := range tests {
		if parent, kind := splitCgroupsPath(tt.path); parent != tt.parent || kind != tt.kind {
			t.Errorf("splitCgroupsPath(%q) = %q, %d; want %q, %d", tt.path, parent, kind, tt.parent, tt.kind)
		}
	}
}

func FuzzSplitCgroupsPath(f *testing.F) {
	for _, s := range []string{"/kubepods/podu/c", "a.slice:b:c", "/../x", "//", ":", "/a/../.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parent, kind := splitCgroupsPath(s)
		switch kind {
		case plain:
			if !filepath.IsAbs(parent) || parent == "/" || filepath.Clean(parent) != parent {
				t.Errorf("%q: parent %q", s, parent)
			}
		case slice:
			if strings.Contains(parent, "/") || !strings.HasSuffix(parent, ".slice") {
				t.Errorf("%q: slice %q", s, parent)
			}
		case unknown:
			if parent != "" {
				t.Errorf("%q: unknown, but parent %q", s, parent)
			}
		}
	})
}

const (
	sandboxA = "0f5fbb700550fcb6ade251cce17392e3d109c0a1fd9f0da2c4a40694d49238b4"
	sandboxB = "6ce8d0a83583aa0fa15c93e998df331261061a777de6db2db89e708e84bf9ca5"
	// Lines of containerd 1.6.20 and 2.4.2.
	realLog = `time="2026-11-29T17:56:12Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:guaranteed,Uid:f5fb812f-4fe8,Namespace:lab,Attempt:0,}"
time="2026-11-29T17:56:12Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:guaranteed,Uid:f5fb812f-4fe8,Namespace:lab,Attempt:0,} returns sandbox id \"` + sandboxA + `\""
time="2026-11-29T17:56:15Z" level=info msg="RunPodSandbox for name:\"guaranteed\"  uid:\"ab610691-6864\"  namespace:\"lab\" returns sandbox id \"` + sandboxB + `\""
time="2026-11-29T17:56:15Z" level=info msg="StopPodSandbox for &PodSandboxMetadata{Name:x,Uid:other,}"
`
)

func TestAddLog(t *testing.T) {
	var tr traces
	tr.init()
	tr.addLog([]byte(realLog))
	if got, want := keys(tr.uids), []string{"ab610691-6864", "f5fb812f-4fe8"}; !slices.Equal(got, want) {
		t.Errorf("UIDs %q; want %q", got, want)
	}
	if got, want := keys(tr.sandboxes), []string{sandboxA, sandboxB}; !slices.Equal(got, want) {
		t.Errorf("sandboxes %q; want %q", got, want)
	}
}

func TestAddLogOfWhatWasBeingMade(t *testing.T) {
	var tr traces
	tr.init()
	tr.addLog([]byte(`time="2026-11-29T19:05:47Z" level=info msg="connecting to shim ` + sandboxA + `" address="unix:///tmp/x/ctd/s/e6" namespace=k8s.io protocol=ttrpc version=3
time="2026-11-29T19:05:47Z" level=info msg="connecting to shim ../../x" address="unix:///tmp/x/ctd/s/e6"
`))
	if got := keys(tr.parents); !slices.Equal(got, []string{"/k8s.io"}) {
		t.Fatalf("cgroup parents %q", got)
	}
	if got := keys(tr.parents["/k8s.io"]); !slices.Equal(got, []string{sandboxA}) {
		t.Errorf("cgroups %q; want that of %s", got, sandboxA)
	}
}

func FuzzAddLog(f *testing.F) {
	f.Add([]byte(realLog))
	f.Add([]byte("RunPodSandbox for &PodSandboxMetadata{Name:,Uid:,"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var tr traces
		tr.init()
		tr.addLog(b)
		if tr.uids[""] {
			t.Errorf("%q: empty UID: it would own every cgroup named pod", b)
		}
	})
}

func TestOwns(t *testing.T) {
	var tr traces
	tr.init()
	tr.uids["ab-1"] = true
	for name, want := range map[string]bool{
		"podab-1": true, "kubepods-podab_1.slice": true, "kubepods-burstable-podab_1.slice": true,
		"podab-12": false, "podab": false, "pod": false, "ab-1": false, "kubepods": false, "podab_1": false,
		"kubepods-podab-1.slice": false, "kubepods.slice": false, "kubepods-podab_12.slice": false,
	} {
		if got := tr.owns(name); got != want {
			t.Errorf("owns(%q) = %t; want %t", name, got, want)
		}
	}
}

func TestCollectBundles(t *testing.T) {
	l := layout{dir: t.TempDir()}
	bundle := func(id string, files map[string]string) {
		dir := filepath.Join(l.state(), "io.containerd.runtime.v2.task/k8s.io", id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, body := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	bundle("c1", map[string]string{
		"config.json": `{"linux":{"cgroupsPath":"/odd/c1"}}`,
		"address":     "unix://" + shimSocketRoot + "/abc\n",
	})
	bundle("c2", map[string]string{"config.json": `{"linux":{"cgroupsPath":"kubepods-podu.slice:cri-containerd:c2"}}`})
	bundle("c3", map[string]string{"config.json": `{"linux":{"cgro`, "address": "unix:///etc/passwd"}) // cut off by SIGKILL; not a shim's
	var tr traces
	tr.collect(l)
	if !tr.parents["/odd"]["c1"] || len(tr.parents) != 1 || !tr.slices["kubepods-podu.slice"] {
		t.Errorf("parents %v, slices %v", tr.parents, tr.slices)
	}
	if !tr.sockets[shimSocketRoot+"/abc"] || tr.sockets["/etc/passwd"] {
		t.Errorf("sockets %v", tr.sockets)
	}
	for _, id := range []string{"c1", "c2", "c3"} {
		if !tr.sandboxes[id] || !tr.sockets[shimSocket(l.socket(), id)] {
			t.Errorf("bundle %s is not known", id)
		}
	}
}

func FuzzAddSpec(f *testing.F) {
	f.Add([]byte(`{"linux":{"cgroupsPath":"/kubepods/podu/c"}}`))
	f.Add([]byte(`{"linux":null}`))
	f.Add([]byte(`{"linux":{"cgroupsPath":"/"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var tr traces
		tr.init()
		tr.addSpec("id", b)
		if tr.parents["/"] != nil || tr.parents[""] != nil {
			t.Errorf("%q: the hierarchy's root would be cleaned", b)
		}
	})
}

func TestRemoveEmptyUpToStaysBelowTheRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "memory")
	deep := filepath.Join(root, "prefix", "kubepods", "burstable")
	used := filepath.Join(root, "used", "kubepods")
	for _, dir := range []string{deep, used, filepath.Join(root, "used", "somebody")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outside := t.TempDir()
	for _, dir := range []string{deep, used, outside, filepath.Dir(root)} {
		removeEmptyUpTo(dir, []string{root})
	}
	for dir, want := range map[string]bool{
		root: true, filepath.Join(root, "prefix"): false, used: false,
		filepath.Join(root, "used", "somebody"): true, outside: true,
	} {
		if isDir(dir) != want {
			t.Errorf("%s there: %t; want %t", dir, !want, want)
		}
	}
}
