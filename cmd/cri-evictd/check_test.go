package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/golden"
)

// check runs check on a node and returns the exit code and its findings.
func (n *node) check(config string) (int, []finding) {
	n.t.Helper()
	args := append([]string{"check", "-o", "json", "--config", config}, n.roots()...)
	code, out, errOut := command(n.t, args...)
	var f findings
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		n.t.Fatalf("%v\n%s\n%s", err, out, errOut)
	}
	return code, f.Findings
}

// stable drops what depends on the machine the test runs on.
func stable(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.Contains(line, " runDir: ") && !strings.Contains(line, " privileges: ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// The whole program reads checked-in machines.
func TestCheckOfEachHierarchy(t *testing.T) {
	for _, tree := range []string{"v1", "hybrid", "v2-systemd", "v2-cgroupfs"} {
		t.Run(tree, func(t *testing.T) {
			n := newNode(t, tree, fakecri.Options{})
			code, out, errOut := command(t, append([]string{"check", "--config", n.config("")}, n.roots()...)...)
			if code != exitOK || errOut != "" {
				t.Errorf("exit %d: %s", code, errOut)
			}
			golden.Check(t, "check-"+tree+".txt", []byte(stable(n.normal(out))))
		})
	}
}

func TestCheckJSON(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	_, out, _ := command(t, append([]string{"check", "-o", "json", "--config", n.config("")}, n.roots()...)...)
	var f findings
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatal(err)
	}
	var kept []finding
	for _, x := range f.Findings {
		if x.What != "runDir" && x.What != "privileges" {
			kept = append(kept, x)
		}
	}
	b, err := json.MarshalIndent(findings{kept}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "check.json", []byte(n.normal(string(b))+"\n"))
}

// expect fails unless there is a finding of this level and kind with this text.
func expect(t *testing.T, n *node, fs []finding, level, what, text string) {
	t.Helper()
	for _, f := range fs {
		if f.Level == level && f.What == what && strings.Contains(n.normal(f.Text), text) {
			return
		}
	}
	t.Errorf("no %s about %s with %q in\n%+v", level, what, text, fs)
}

func TestCheckOfABrokenConfiguration(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	code, fs := n.check(n.config("mode: watch\nevictionHrad: {}\n"))
	if code != exitProblem {
		t.Errorf("exit %d", code)
	}
	expect(t, n, fs, levelError, "configuration", `mode: "watch": must be one of enforce, observe`)
	expect(t, n, fs, levelError, "configuration", "evictionHrad: {}: unknown key; did you mean evictionHard?")
	// The rest is looked at all the same.
	expect(t, n, fs, levelOK, "runtime", "fake v1.0.0")
	expect(t, n, fs, levelOK, "cgroups", "v2, 3 pods")

	code, fs = n.check(n.path("none.yaml"))
	if code != exitProblem {
		t.Errorf("exit %d", code)
	}
	expect(t, n, fs, levelError, "configuration", "open $DIR/none.yaml: no such file")
}

func TestCheckWarnings(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	kubelet := n.write("kubelet.yaml", "kind: KubeletConfiguration\nevictionHard: {memory.available: 300Mi}\n")
	k3s := n.write("k3s.yaml", "kind: KubeletConfiguration\nevictionHard: {nodefs.available: 5%}\n")
	other := n.write("other.yaml", "kind: Other\n")
	for _, tt := range []struct {
		config             string
		code               int
		level, what, wants string
	}{
		{"evictionHard: {memory.available: \"0%\"}\n", exitOK, levelWarning, "memory.available", "turned off: it evicts nothing"},
		{"evictionHard: {memory.available: 15500Mi}\n", exitOK, levelWarning, "memory.available", "the threshold is met now (14668Mi available)"},
		{"evictionHard: {memory.available: 17Gi}\n", exitProblem, levelError, "memory.available", "the threshold 17Gi is not below the capacity"},
		{"evictionHard: {memory.available: 100Mi}\n", exitOK, levelWarning, "memory.available", "is below 1.5 x min_free_kbytes + 256Mi"},
		{"", exitOK, levelOK, "kubelet", "kubeletConfig is not set"},
		{"kubeletConfig: " + kubelet + "\n", exitOK, levelOK, "kubelet", "its hard memory.available is 300Mi, 200Mi below ours"},
		{"kubeletConfig: " + kubelet + "\nevictionHard: {memory.available: 300Mi}\n", exitOK, levelWarning, "kubelet", "our threshold 300Mi is not above kubelet's 300Mi: kubelet evicts first"},
		// bugs.md B34: kubelet has no memory threshold; ours stays.
		{"kubeletConfig: " + k3s + "\n", exitOK, levelWarning, "kubelet", "its hard memory.available is not set: there is no backstop below ours"},
		{"kubeletConfig: " + k3s + "\n", exitOK, levelOK, "memory.available", "threshold 500Mi (auto), floor 100Mi"},
		{"kubeletConfig: " + other + "\n", exitProblem, levelError, "kubelet", `kind "Other": must be KubeletConfiguration`},
		{"kubeletConfig: " + n.path("none") + "\n", exitProblem, levelError, "kubelet", "no such file"},
	} {
		code, fs := n.check(n.config(tt.config))
		if code != tt.code {
			t.Errorf("%s: exit %d, want %d: %+v", tt.config, code, tt.code, fs)
		}
		expect(t, n, fs, tt.level, tt.what, tt.wants)
	}
}

func TestCheckOfARuntime(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		n := newNode(t, v2Tree, fakecri.Options{})
		config := n.config("")
		n.runtime.Close()
		code, fs := n.check(config)
		if code != exitProblem {
			t.Errorf("exit %d", code)
		}
		expect(t, n, fs, levelError, "runtime", "($DIR/rt/cri.sock: no such file or directory)")
	})
	t.Run("dead", func(t *testing.T) {
		n := newNode(t, v2Tree, fakecri.Options{})
		config := n.config("")
		n.runtime.Crash()
		code, fs := n.check(config)
		if code != exitProblem {
			t.Errorf("exit %d", code)
		}
		expect(t, n, fs, levelError, "runtime", "connection refused")
		expect(t, n, fs, levelError, "runtime", "(owner ")
	})
	t.Run("hangs", func(t *testing.T) {
		n := newNode(t, v2Tree, fakecri.Options{})
		n.runtime.Inject("Version", fakecri.Fault{Hang: true})
		code, fs := n.check(n.config(""))
		if code != exitProblem {
			t.Errorf("exit %d", code)
		}
		expect(t, n, fs, levelError, "runtime", "DeadlineExceeded")
		expect(t, n, fs, levelOK, "listen", "is free")
	})
	// bugs.md B99
	t.Run("not CRI", func(t *testing.T) {
		n := newNode(t, v2Tree, fakecri.Options{Without: []string{"runtime.v1.RuntimeService"}})
		code, fs := n.check(n.config(""))
		if code != exitProblem {
			t.Errorf("exit %d", code)
		}
		expect(t, n, fs, levelError, "runtime", "unix://$DIR/rt/cri.sock does not serve runtime.v1.RuntimeService")
	})
}

func TestCheckOfSockets(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	config := n.config("")
	live, err := net.Listen("unix", n.path("cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = live.Close() }()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.path("admin.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(n.path("run/proxy.sock"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, fs := n.check(config)
	if code != exitProblem {
		t.Errorf("exit %d", code)
	}
	expect(t, n, fs, levelOK, "listen", "$DIR/cri.sock is served already")
	expect(t, n, fs, levelOK, "adminSocket", "$DIR/admin.sock is stale and will be replaced")
	expect(t, n, fs, levelError, "proxySocket", "$DIR/run/proxy.sock exists and is not a socket (drwx------)")
}

// Who may not connect cannot tell whether a socket is stale.
func TestCheckOfASocketWithoutPermission(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	path := n.path("x.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := errors.Join(os.Chmod(path, 0), os.Chmod(n.dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// Root may connect to everything. The thread looks as somebody else.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Setfsuid(0) }()
	}
	if level, text := checkSocket(path); level != levelWarning || !strings.Contains(text, "may be in use") || !strings.Contains(text, "permission denied") {
		t.Errorf("%s: %s", level, text)
	}
}

// The warning follows the reading that is configured.
func TestCheckWarnsByTheConfiguredReading(t *testing.T) {
	// The tree's readings are 11 GiB by the kernel and 1.5 GiB by kubelet.
	for from, want := range map[string]bool{"kernel": false, "kubelet": true, "verified": false} {
		n := newNode(t, "hybrid", fakecri.Options{})
		_, fs := n.check(n.config("memoryAvailableFrom: " + from + "\nevictionHard: {memory.available: 2Gi}\n"))
		met := slices.ContainsFunc(fs, func(f finding) bool { return strings.Contains(f.Text, "is met now") })
		if met != want {
			t.Errorf("%s: met %v, want %v", from, met, want)
		}
	}
}

func TestCheckOfTheMachine(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	config := n.config("")
	check := func(change func()) []finding {
		t.Helper()
		change()
		_, fs := n.check(config)
		return fs
	}
	write := n.edit
	fs := check(func() { _ = os.Remove(filepath.Join(n.tree, "proc/sys/vm/min_free_kbytes")) })
	expect(t, n, fs, levelWarning, "machine", "min_free_kbytes is unknown and taken as 0")
	fs = check(func() { _ = os.Remove(filepath.Join(n.tree, "proc/vmstat")) })
	expect(t, n, fs, levelWarning, "machine", "direct reclaim cannot be seen")
	fs = check(func() { write("proc/meminfo", "MemTotal: lots kB\n") })
	expect(t, n, fs, levelError, "machine", "MemTotal")
	fs = check(func() { _ = os.RemoveAll(filepath.Join(n.tree, "cgroup")) })
	expect(t, n, fs, levelError, "machine", "$DIR/tree/cgroup")
}
