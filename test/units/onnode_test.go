package units

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	steady = "steady-" + hostname // a static pod's name has its node's
	best   = "best-" + hostname
	later  = "later-" + hostname
)

// TestOnAndOff goes from an ordinary node to one with cri-evictd and back by the
// commands of docs/operations.md, read from there.
func TestOnAndOff(t *testing.T) {
	n := newNode(t)
	text, err := os.ReadFile(operations)
	must(t, err)
	before := n.traces()
	n.addPod("steady", "requests: {memory: 20Mi}")
	n.addPod("best", "")
	n.run("systemctl", "start", "kubelet.service")
	w := &walk{node: n, pods: n.await(steady, best)}
	w.made = n.containers(w.pods)

	w.follow(shellBlocks(string(text), "On"), []leg{
		{has: "make install", then: w.installed},
		{has: "cri-evictd check"},
		{has: "systemctl enable", then: w.started},
		{has: "crictl info", instead: n.crictl},
		{has: "systemctl restart kubelet", then: w.through},
		{has: "cri-evictd explain", then: w.watched},
		{has: "systemctl reload", then: w.enforces},
	})
	w.follow(shellBlocks(string(text), "Off"), []leg{
		{has: "systemctl restart kubelet", then: w.direct},
		{has: "systemctl disable", then: w.stopped},
		{has: "make uninstall"},
	})

	if after := n.traces(); !slices.Equal(after, before) {
		t.Errorf("before:\n%s\nafterwards:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	for path, text := range nodeFiles() {
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%s is another: %v\n%s", path, err, b)
		}
	}
	w.untouched("at the end")
}

// walk is the way there and back.
type walk struct {
	*node
	pods   map[string]podNow // that must outlive it
	made   []string          // their containers
	output string            // of the last block
}

// leg is a block of the document and what must come out of it.
type leg struct {
	has     string             // a command by which the block is known
	instead func(block string) // runs it; nil: as it is
	then    func()
}

func (w *walk) follow(blocks []string, legs []leg) {
	t := w.t
	t.Helper()
	if len(blocks) != len(legs) {
		t.Fatalf("the document has %d blocks of commands, the test knows %d: %q", len(blocks), len(legs), blocks)
	}
	for i, l := range legs {
		if !strings.Contains(blocks[i], l.has) {
			t.Fatalf("block %d should have %q:\n%s", i, l.has, blocks[i])
		}
		begun := time.Now()
		if l.instead != nil {
			l.instead(blocks[i])
		} else {
			_, out, err := w.shell(blocks[i])
			t.Logf("%s%s", blocks[i], out)
			if err != nil {
				t.Fatalf("%v, in\n%s", err, blocks[i])
			}
			w.output = out
		}
		ran := time.Since(begun)
		if l.then != nil {
			l.then()
		}
		w.untouched(l.has)
		t.Logf("%s: %.1f s, and %.1f s to look", l.has, ran.Seconds(), (time.Since(begun) - ran).Seconds())
	}
}

// untouched fails if one of the containers was ended, made or started again.
func (w *walk) untouched(after string) {
	w.t.Helper()
	if now := w.containers(w.pods); !slices.Equal(now, w.made) {
		w.t.Errorf("after %q:\n%s\nwas\n%s", after, strings.Join(now, "\n"), strings.Join(w.made, "\n"))
	}
}

// await waits until kubelet says that just these pods run. It asks once a second:
// where everything is emulated, each answer over TLS costs kubelet a part of one.
func (n *node) await(names ...string) map[string]podNow {
	n.t.Helper()
	slices.Sort(names)
	var pods map[string]podNow
	for end := time.Now().Add(30 * time.Second * n.slow); ; time.Sleep(time.Second) {
		pods = n.pods()
		if slices.Equal(slices.Sorted(maps.Keys(pods)), names) {
			return pods
		}
		if time.Now().After(end) {
			n.t.Fatalf("kubelet says that %v run, want %q", pods, names)
		}
	}
}

// usesEndpoint fails if kubelet was not started with this socket, or says that a
// pod is another one now.
func (w *walk) usesEndpoint(socket string, pods ...string) {
	t := w.t
	t.Helper()
	now := w.await(pods...)
	b, err := w.kubelet.Get(t.Context(), "/configz")
	must(t, err)
	if !strings.Contains(string(b), `:"unix:///var`+socket+`"`) {
		t.Errorf("kubelet's configuration lacks %s: %s", socket, b)
	}
	for name, pod := range w.pods {
		if now[name] != pod || pod.Restarts != 0 {
			t.Errorf("%s is %+v, was %+v", name, now[name], pod)
		}
	}
}

// proxied returns how many calls of each method the proxy has answered well.
func (n *node) proxied() map[string]uint64 {
	n.t.Helper()
	out, _ := n.try(program, "status", "-o", "json") // 1 when something is wrong
	var s struct {
		Proxy struct {
			Methods []struct {
				Method, Code string
				Count        uint64
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		n.t.Fatalf("status: %v\n%s", err, out)
	}
	calls := map[string]uint64{}
	for _, m := range s.Proxy.Methods {
		if m.Code == "OK" {
			calls[path.Base(m.Method)] += m.Count
		}
	}
	return calls
}

func (w *walk) installed() {
	for _, unit := range []string{"cri-evictd.socket", unitProx, unitEv} {
		if state, _ := w.try("systemctl", "is-enabled", unit); state != "disabled" || w.active(unit) {
			w.t.Errorf("%s is %s, active: %t", unit, state, w.active(unit))
		}
	}
}

func (w *walk) started() {
	if !w.answered() {
		w.t.Error("nobody answers")
	}
	if !strings.Contains(w.output, "mode observe") || !strings.Contains(w.output, "no problems") {
		w.t.Error("status: want mode observe and no problems")
	}
}

// through: kubelet's calls go through the proxy.
func (w *walk) through() {
	w.usesEndpoint(socket, steady, best)
	w.addPod("later", "")
	w.await(steady, best, later)
	// Nobody but kubelet makes these.
	calls := w.proxied()
	if calls["RunPodSandbox"] != 1 || calls["StartContainer"] != 1 || calls["RuntimeConfig"] == 0 || calls["ListContainers"] == 0 {
		w.t.Errorf("calls through the proxy: %v", calls)
	}
}

func (w *walk) watched() {
	for _, want := range []string{"mode observe", "no problems", "default/" + steady, "default/" + best, "default/" + later} {
		if !strings.Contains(w.output, want) {
			w.t.Errorf("status and explain do not say %q", want)
		}
	}
}

func (w *walk) enforces() {
	w.eventually("mode enforce", 10*time.Second*w.slow, func() bool {
		out, err := w.try(program, "status")
		return err == nil && strings.Contains(out, "mode enforce")
	})
}

// direct: kubelet's calls go past the proxy, which still runs.
func (w *walk) direct() {
	w.usesEndpoint(runtimeSocket, steady, best, later)
	before := w.proxied()
	must(w.t, os.Remove(filepath.Join(manifests, "later.yaml")))
	w.eventually("kubelet ends a pod", 30*time.Second*w.slow, func() bool { return !w.running(later) })
	w.await(steady, best)
	if after := w.proxied(); !maps.Equal(before, after) {
		w.t.Errorf("calls still come through the proxy: %v, before %v", after, before)
	}
}

// running says whether containerd has a container of this pod that runs.
func (n *node) running(pod string) bool {
	n.t.Helper()
	return slices.ContainsFunc(n.containers(map[string]podNow{pod: {}}), func(s string) bool { return strings.HasSuffix(s, "CONTAINER_RUNNING") })
}

func (w *walk) stopped() {
	if w.answered() {
		w.t.Error("somebody answers")
	}
	if now := w.await(steady, best); !maps.Equal(now, w.pods) {
		w.t.Errorf("%+v, was %+v", now, w.pods)
	}
}
