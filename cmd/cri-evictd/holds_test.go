package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// hold writes a hold as the evictor does.
func (n *node) hold(uid, name string, decided time.Time) {
	n.t.Helper()
	w, err := holds.OpenWriter(n.path("run"))
	if err != nil {
		n.t.Fatal(err)
	}
	err = w.Put(holds.Record{
		ID: w.NextID(), State: holds.Killed, UID: uid, Namespace: "default", Name: name, Signal: "memory.available",
		Threshold: 500 << 20, Available: 400 << 20, Usage: 900 << 20, Decided: decided, KilledAt: decided,
	})
	if err := errors.Join(err, w.Close()); err != nil {
		n.t.Fatal(err)
	}
}

// runPod runs a sandbox through the daemon's socket.
func (n *node) runPod(uid, name string, attempt uint32) error {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err := n.client().Runtime().RunPodSandbox(ctx, sandboxRequest(uid, name, "/kubepods/burstable/pod"+uid, attempt))
	return err
}

func TestExpiringHolds(t *testing.T) {
	decided := time.Unix(1000, 0)
	n := newNode(t, v2Tree, fakecri.Options{})
	n.hold("u1", "a", decided)
	reader := holds.OpenReader(n.path("run"))
	defer func() { _ = reader.Close() }()
	now := decided
	h := expiringHolds{Reader: reader, maximum: func() time.Duration { return time.Hour }, now: func() time.Time { return now }}
	for _, tt := range []struct {
		after time.Duration
		held  bool
	}{{0, true}, {time.Hour - 1, true}, {time.Hour, false}, {24 * time.Hour, false}, {-time.Hour, true}} {
		now = decided.Add(tt.after)
		if r, held := h.Held("u1"); held != tt.held || held != (r.UID == "u1") {
			t.Errorf("%s after: held %v %q", tt.after, held, r.UID)
		}
	}
	now = decided
	if _, held := h.Held("u2"); held {
		t.Error("another pod is held")
	}
	if _, held := h.HeldSandbox("s1"); held {
		t.Error("a sandbox nobody evicted is held")
	}
	now = decided.Add(2 * time.Hour)
	if len(h.Lookup("u1")) != 1 {
		t.Error("the reason is gone with the hold")
	}
}

// A hold older than holdMaximum ends by itself, without an evictor.
func TestProxyAloneEndsOldHolds(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.hold("young", "young", time.Now())
	n.hold("old", "old", time.Now().Add(-61*time.Second))
	d := n.start("proxy", append(n.roots(), "--config", n.config("holdMaximum: 60s\n"))...)
	d.waitFor("proxy listens")
	err := n.runPod("young", "young", 1)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "pod default/young") {
		t.Errorf("young: %v", err)
	}
	if err := n.runPod("old", "old", 1); err != nil {
		t.Errorf("old: %v", err)
	}
}

// proxy and evict as two programs, joined by runDir and proxySocket only.
func TestProxyAndEvictApart(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	args := append(n.roots(), "--config", n.config(""))
	admin := []string{"--admin-socket", n.path("admin.sock")}
	n.hold(burstableUID, "hog", time.Now()) // as left by a crash

	evict := n.start("evict", args...)
	evict.waitFor("watching memory.available")
	eventually(t, "status tells that there is no proxy", func() bool {
		code, out, _ := command(t, append([]string{"status"}, admin...)...)
		return code == exitProblem && strings.Contains(out, "problem: no proxy (")
	})

	proxy := n.start("proxy", args...)
	proxy.waitFor("proxy listens")
	evict.waitFor("following the proxy's events")
	eventually(t, "status is good", n.healthy)

	// The evictor's hold is enforced by the proxy, other pods pass.
	err := n.runPod(burstableUID, "hog", 1)
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("held pod: %v", err)
	}
	if err := n.runPod("other", "other", 0); err != nil {
		t.Fatalf("other pod: %v", err)
	}
	// What the proxy sees is known to the evictor.
	eventually(t, "the evictor knows the pod that was started", func() bool {
		code, out, _ := command(t, append([]string{"explain", "default/other", "-o", "json"}, admin...)...)
		return code == exitOK && strings.Contains(out, `"uid": "other"`)
	})

	code, out, errOut := command(t, append([]string{"holds", "list"}, admin...)...)
	if code != exitOK || !strings.Contains(out, burstableUID) || !strings.Contains(out, "killed") {
		t.Errorf("%d %s %s", code, out, errOut)
	}
	code, out, errOut = command(t, append([]string{"holds", "release", "default/hog"}, admin...)...)
	if code != exitOK || out != "released: default/hog (uid "+burstableUID+")\n" {
		t.Errorf("%d %s %s", code, out, errOut)
	}
	if err := n.runPod(burstableUID, "hog", 2); err != nil {
		t.Errorf("released pod: %v", err)
	}

	// Without the evictor calls go on, and the proxy does not end.
	if code := evict.stop(); code != exitOK {
		t.Errorf("evict: exit %d", code)
	}
	n.mustFlow()
	if code := proxy.stop(); code != exitOK {
		t.Errorf("proxy: exit %d", code)
	}
}

// Two evictors on one run directory: the second says who is there.
func TestSecondEvictor(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	args := append(n.roots(), "--config", n.config(""))
	first := n.start("evict", args...)
	first.waitFor("watching memory.available")
	eventually(t, "it serves", func() bool {
		code, _, _ := command(t, "holds", "list", "--admin-socket", n.path("admin.sock"))
		return code == exitOK
	})
	second := n.start("evict", args...)
	if code := second.wait(); code != exitProblem || !strings.Contains(second.log.String(), "cri-evictd: holds file: ") {
		t.Errorf("exit %d: %s", code, &second.log)
	}
	if code, _, _ := command(t, "holds", "list", "--admin-socket", n.path("admin.sock")); code != exitOK {
		t.Error("the first one was disturbed")
	}
}

// Without a proxy the evictor's own connection tells that the runtime was
// restarted.
func TestEvictAloneListsAfterARestartOfTheRuntime(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	// Pod cgroups nobody knows lead to a list every 10 s.
	if err := os.RemoveAll(n.tree + "/cgroup/kubepods.slice"); err != nil {
		t.Fatal(err)
	}
	direct, err := n.runtime.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	sb, err := direct.Runtime().RunPodSandbox(t.Context(), sandboxRequest("u1", "a", "", 0))
	if err != nil {
		t.Fatal(err)
	}
	n.start("evict", append(n.roots(), "--config", n.config(""))...)
	pods := func(want string) func() bool {
		return func() bool {
			_, out, _ := command(t, "status", "--admin-socket", n.path("admin.sock"))
			return strings.Contains(out, want+" known")
		}
	}
	eventually(t, "the pod is known", pods("1"))
	n.runtime.Crash()
	n.runtime.Vanish(sb.GetPodSandboxId())
	if err := n.runtime.Up(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is forgotten", pods("0"))
}
