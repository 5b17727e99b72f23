package main

import (
	"bytes"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// gcDryRun runs gc --dry-run and returns the plan.
func (n *node) gcDryRun() gc.Plan {
	n.t.Helper()
	code, out, errOut := command(n.t, "gc", "--dry-run", "-o", "json", "--admin-socket", n.path("admin.sock"))
	var p gc.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || code != exitOK {
		n.t.Fatalf("exit %d, %v: %s%s", code, err, out, errOut)
	}
	return p
}

// The dry run lists what would go and why the rest stays, with the whole program on
// a fake runtime; nothing is removed.
func TestGCDryRun(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.runtime.AddImage("registry.example/app:1", 10<<20, false)
	n.runtime.AddImage("registry.example/pause:3", 1<<20, false)
	n.runtime.AddImage("registry.example/pinned:1", 1<<20, true)
	n.runtime.AddImage("registry.example/base/a:1", 1<<20, false)
	n.serve("imageAllowList: [\"registry.example/base/*\"]\nimageMinimumGCAge: 0s\n")
	eventually(t, "status is good", n.healthy)
	c, ctx := n.client().Runtime(), t.Context()
	sandbox, err := c.RunPodSandbox(ctx, sandboxRequest("u1", "loops", "", 0))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 3 {
		r, err := c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: uint32(i)}, Image: &runtimeapi.ImageSpec{Image: "registry.example/app:1"},
		}})
		if err == nil {
			_, err = c.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: r.GetContainerId()})
		}
		if err == nil {
			err = n.runtime.Exit(r.GetContainerId(), 1, "Error")
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.GetContainerId())
	}
	p := n.gcDryRun()
	why := map[string]string{}
	for _, s := range p.ContainersStay {
		why[s.ID] = s.Why
	}
	if len(p.ContainersGo) != 0 || !strings.Contains(why[ids[0]], "successor is not") || !strings.Contains(why[ids[2]], "newest of its name") {
		t.Errorf("containers: %+v", p)
	}
	images := map[string]string{}
	for _, s := range append(p.ImagesGo, p.ImagesStay...) {
		images[s.Names[0]] = s.Why
	}
	for name, part := range map[string]string{
		"registry.example/app:1": "a container needs it: main", "registry.example/pause:3": "name of a sandbox image",
		"registry.example/pinned:1": "pinned", "registry.example/base/a:1": `imageAllowList has "registry.example/base/*"`,
	} {
		if !strings.Contains(images[name], part) {
			t.Errorf("%s: %q, want %q", name, images[name], part)
		}
	}
	if !p.Acts || p.ImagesOff != "" || p.ImagesProblem != "" {
		t.Errorf("%+v", p)
	}
	if calls := n.runtime.Calls("RemoveContainer", "RemoveImage", "RemovePodSandbox"); len(calls) > 0 {
		t.Errorf("%d removals", len(calls))
	}
	code, out, errOut := command(t, "gc", "--dry-run", "--admin-socket", n.path("admin.sock"))
	if code != exitOK || !strings.Contains(out, "images that would be removed: 0") || !strings.Contains(out, "dead containers and sandboxes that stay: 3") {
		t.Errorf("exit %d: %s%s", code, out, errOut)
	}
	if code, _, errOut := command(t, "gc", "--admin-socket", n.path("admin.sock")); code != exitUsage || !strings.Contains(errOut, "needs --dry-run") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}

// Without a kubelet and without a word in the configuration no image goes.
func TestImageGCIsOffWithoutKubelet(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.serve("mode: observe\n")
	eventually(t, "status is good", n.healthy)
	p := n.gcDryRun()
	if !strings.Contains(p.ImagesOff, "no sign of a kubelet") || p.Acts {
		t.Errorf("%+v", p)
	}
	_, out, _ := command(t, "gc", "--dry-run", "--admin-socket", n.path("admin.sock"))
	if !strings.Contains(out, "nothing is removed now") || !strings.Contains(out, "image GC is off") {
		t.Error(out)
	}
}

func TestKubeletHere(t *testing.T) {
	made := inventory.NewStore(inventory.Options{})
	made.ApplyListing(inventory.Listing{Started: time.Now(), Sandboxes: []inventory.ListedSandbox{{
		Sandbox: inventory.Sandbox{ID: "s"}, Pod: inventory.Ref{UID: "u"}, Annotations: map[string]string{configSource: "api"},
	}}})
	none := inventory.NewStore(inventory.Options{}).Snapshot()
	for name, got := range map[string]bool{
		"nothing": !kubeletHere(config.Config{}, false, none), "its configuration": kubeletHere(config.Config{KubeletConfig: "/k"}, false, none),
		"a source": kubeletHere(config.Config{}, true, none), "its pods": kubeletHere(config.Config{}, false, made.Snapshot()),
	} {
		if !got {
			t.Errorf("%s: wrong", name)
		}
	}
}

func TestNoteImages(t *testing.T) {
	uses := gc.NewUses(nil, time.Now)
	uses.Listed([]gc.Image{{ID: "sha256:" + strings.Repeat("0", 64), Names: []string{"app:1"}}, {ID: "sha256:" + strings.Repeat("1", 64), Names: []string{"vol:1"}}})
	before := time.Now()
	note := func(e proxy.Event) { noteImages(uses, &e) }
	note(proxy.Event{Type: proxy.EventHello})
	if _, linked := uses.Watched(); !linked {
		t.Error("not linked after hello")
	}
	note(proxy.Event{Type: proxy.EventCreateBegin, Image: "app:1", MountedImages: []string{"vol:1"}})
	for _, n := range []string{"docker.io/library/app:1", "docker.io/library/vol:1"} {
		if !uses.InFlight([]string{n}) {
			t.Errorf("%s is not in flight", n)
		}
	}
	note(proxy.Event{Type: proxy.EventCreateEnd, Image: "app:1", MountedImages: []string{"vol:1"}})
	for _, c := range []string{"0", "1"} {
		if u, ok := uses.Use("sha256:" + strings.Repeat(c, 64)); !ok || u.LastUsed.Before(before) || uses.InFlight([]string{"docker.io/library/app:1"}) {
			t.Errorf("%s: %+v", c, u)
		}
	}
	note(proxy.Event{Type: proxy.EventPullBegin, Image: "app:1"})
	note(proxy.Event{Type: proxy.EventPullEnd, Image: "app:1", ImageID: "sha256:" + strings.Repeat("0", 64)})
	if u, _ := uses.Use("sha256:" + strings.Repeat("0", 64)); len(u.Pulls) != 1 {
		t.Errorf("%+v", u)
	}
	note(proxy.Event{Type: proxy.EventPullBegin, Image: "app:1"})
	note(proxy.Event{Type: proxy.EventPullEnd, Image: "app:1", Err: "Unknown"})
	if u, _ := uses.Use("sha256:" + strings.Repeat("0", 64)); len(u.Pulls) != 1 {
		t.Errorf("a failed pull counts: %+v", u)
	}
}

func TestConsumersOf(t *testing.T) {
	pods := []*inventory.Pod{{Ref: inventory.Ref{Namespace: "a", Name: "small", UID: "1"}}, {Ref: inventory.Ref{Namespace: "a", Name: "large", UID: "2"}}, {Ref: inventory.Ref{UID: "3"}}}
	part := func(device, bytes, inodes uint64) eviction.UsagePart {
		return eviction.UsagePart{Device: device, Bytes: eviction.UsageNumber{Value: bytes, Known: true}, Inodes: eviction.UsageNumber{Value: inodes, Known: true}}
	}
	usage := map[string]*eviction.PodUsage{
		"1": {Parts: []eviction.UsagePart{part(7, 10, 100), part(8, 1000, 1)}},
		"2": {Parts: []eviction.UsagePart{part(7, 10, 1), part(7, 20, 1)}},
	}
	if got := consumersOf(pods, usage, 7, eviction.Bytes); len(got) != 2 || got[0] != (gc.Consumer{Name: "a/large", Amount: 30}) {
		t.Errorf("%+v", got)
	}
	if got := consumersOf(pods, usage, 7, eviction.Inodes); len(got) != 2 || got[0] != (gc.Consumer{Name: "a/small", Amount: 100}) {
		t.Errorf("%+v", got)
	}
	if got := consumersOf(pods, usage, 9, eviction.Bytes); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestHeldUIDs(t *testing.T) {
	got := heldUIDs([]holds.Record{{UID: "i", State: holds.Intent}, {UID: "k", State: holds.Killed}, {UID: "r", State: holds.Released}})
	if len(got) != 2 || !got["i"] || !got["k"] {
		t.Errorf("%v", got)
	}
}

// check says whether a removed image could be pulled again.
func TestCheckImages(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing is sent
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ images, config, level, wants string }{
		{"", "", levelOK, "no image is removed"},
		{l.Addr().String() + "/app:1", "", levelOK, "no image is removed"},
		{l.Addr().String() + "/app:1", "imageGCHighThresholdPercent: 90\n", levelOK, "from 90% use down to 80%, and one registry at least can be reached: " + l.Addr().String()},
		{nobody + "/app:1", "imageGCHighThresholdPercent: 100\n", levelWarning, "only when a threshold is met, and none of the registries they come from can be reached from here (" + nobody + ")"},
		{nobody + "/app:1 " + l.Addr().String() + "/b:1", "imageMinimumGCAge: 5m\n", levelOK, "can be reached: " + l.Addr().String()},
		{"", "imageMinimumGCAge: 5m\n", levelOK, "none is here"},
	} {
		n := newNode(t, v2Tree, fakecri.Options{})
		for _, name := range strings.Fields(c.images) {
			n.runtime.AddImage(name, 1, false)
		}
		_, found := n.check(n.config(c.config))
		if !slices.ContainsFunc(found, func(f finding) bool {
			return f.What == "images" && f.Level == c.level && strings.Contains(f.Text, c.wants)
		}) {
			t.Errorf("%+v: %+v", c, found)
		}
	}
}

func TestExplainPrintsRemovals(t *testing.T) {
	var out bytes.Buffer
	printExplanation(&out, &admin.Explanation{Removals: []gc.Run{{Time: time.Now(), Why: gc.ForWatermark, Unit: eviction.Bytes, Images: 3, Freed: 7 << 20}}})
	if got := out.String(); !strings.Contains(got, "removed without a threshold being met:") || !strings.Contains(got, "watermark") || !strings.Contains(got, "7Mi") {
		t.Error(got)
	}
}
