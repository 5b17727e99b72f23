package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// disk is a small file system that a containerd's root lies on.
type disk struct {
	t      *testing.T
	dir    string
	filler string
}

// free is what is available, in bytes.
func (d *disk) free() int64 {
	d.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		d.t.Fatal(err)
	}
	return int64(st.Bavail) * st.Frsize
}

// fillTo leaves about so much available; 0 gives all back.
func (d *disk) fillTo(free int64) {
	d.t.Helper()
	if err := os.RemoveAll(d.filler); err != nil {
		d.t.Fatal(err)
	}
	if free == 0 {
		return
	}
	f, err := os.Create(d.filler)
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, max(1, d.free()-free)), f.Close())
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// gcNode is a node on a disk of its own with cri-evictd in front of it, and a
// registry.
type gcNode struct {
	*node
	*disk
	d        *daemon
	registry *registry
	images   runtimeapi.ImageServiceClient // through the proxy
	sandbox  lab.Running
}

// gcPolicy has image GC on, keeps the workload image, and never takes a pod.
const gcPolicy = `imageMinimumGCAge: 2s
imageGCHighThresholdPercent: 100
imageAllowList: [%q]
protectedNamespaces: [default, kube-system]
evictionPressureTransitionPeriod: 1s
evictionHard:
  memory.available: 20Mi
  nodefs.available: "0%%"
  nodefs.inodesFree: "0%%"
  imagefs.inodesFree: "0%%"
  imagefs.available: %q
`

func newGCNode(t *testing.T, v lab.Version, size int64) *gcNode {
	t.Helper()
	needRoot(t)
	g := &gcNode{}
	g.node = newNodeOn(t, v, func(dir string) error {
		g.disk = &disk{t: t, dir: dir, filler: filepath.Join(dir, "filler")}
		return loopFS(filepath.Join(filepath.Dir(dir), "root.img"), dir, size, 65536)
	})
	g.registry = newRegistry(t)
	g.threshold(mi)
	g.d = g.start(binary(t, ""), nil, "serve", "--config", filepath.Join(g.node.dir, "config.yaml"))
	g.d.waitReady()
	g.images = runtimeapi.NewImageServiceClient(g.d.conn)
	uid := lab.NewUID()
	g.sandbox = g.run(g.d.cri, lab.PodSpec{Namespace: "default", Name: "keeper", UID: uid, CgroupParent: g.parent("BestEffort", uid)})
	return g
}

// threshold writes the configuration with this one for imagefs.available.
func (g *gcNode) threshold(bytes int64) {
	g.node.t.Helper()
	g.defaults(fmt.Sprintf(gcPolicy, lab.WorkloadImage, strconv.FormatInt(bytes, 10)))
}

// reload has it in force once it was seen clear.
func (g *gcNode) reload(bytes int64) {
	g.node.t.Helper()
	g.threshold(bytes)
	if err := g.d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		g.node.t.Fatal(err)
	}
	eventually(g.node.t, "the threshold is in force and clear", 30*time.Second, func() bool {
		s, err := g.d.admin().Status(g.node.t.Context())
		return err == nil && slices.ContainsFunc(s.Engine.Signals, func(x eviction.SignalNow) bool {
			return x.Signal == eviction.ImageFsAvailable && !x.Unarmed && slices.ContainsFunc(x.Thresholds, func(h eviction.ThresholdNow) bool {
				return h.Amount == uint64(bytes) && !h.Met
			})
		})
	})
}

// pull pulls through the proxy and returns the image's ID.
func (g *gcNode) pull(name string) string {
	g.node.t.Helper()
	r, err := g.images.PullImage(patience(g.node.t), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	if err != nil {
		g.node.t.Fatal(err)
	}
	return r.GetImageRef()
}

// create makes a container of an image, which never runs, and returns its ID.
func (g *gcNode) create(image string, attempt uint32) (string, error) {
	r, err := g.d.cri.CreateContainer(patience(g.node.t), &runtimeapi.CreateContainerRequest{
		PodSandboxId: g.sandbox.SandboxID,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("c%d", attempt), Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: image},
			Command: []string{"/data"}, Linux: &runtimeapi.LinuxContainerConfig{},
		},
		SandboxConfig: &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "keeper", Namespace: "default"}},
	})
	return r.GetContainerId(), err
}

func (g *gcNode) removeContainer(id string) {
	g.node.t.Helper()
	if _, err := g.d.cri.RemoveContainer(patience(g.node.t), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		g.node.t.Fatal(err)
	}
}

// listed are the images the runtime has, by ID with their names.
func (g *gcNode) listed() map[string]string {
	g.node.t.Helper()
	r, err := runtimeapi.NewImageServiceClient(g.dial(g.runtime)).ListImages(patience(g.node.t), &runtimeapi.ListImagesRequest{})
	if err != nil {
		g.node.t.Fatal(err)
	}
	out := map[string]string{}
	for _, i := range r.GetImages() {
		out[i.GetId()] = strings.Join(append(i.GetRepoTags(), i.GetRepoDigests()...), " ")
	}
	return out
}

// mustHave fails unless an image with each of these names is there.
func (g *gcNode) mustHave(names ...string) {
	g.node.t.Helper()
	all := strings.Join(slices.Collect(maps.Values(g.listed())), " ")
	for _, n := range names {
		if !strings.Contains(all, n) {
			g.node.t.Errorf("%s is gone; there are %s", n, all)
		}
	}
}

// Before anybody has to go unused images are removed, the one not used for the
// longest time first, and no more than it takes; images in use, allow-listed ones
// and the sandbox image stay.
func TestImagesGoOneByOne(t *testing.T) {
	for _, v := range lab.Versions() {
		t.Run(string(v), func(t *testing.T) { imagesGoOneByOne(t, v) })
	}
}

func imagesGoOneByOne(t *testing.T, v lab.Version) {
	const size = 24 * mi
	g := newGCNode(t, v, 1536*mi)
	var ids []string
	before := g.free()
	for i := range 8 {
		ids = append(ids, g.pull(g.registry.image(fmt.Sprintf("app-%d", i), size, uint64(i))))
	}
	each := (before - g.free()) / int64(len(ids))
	t.Logf("an image takes %d MiB of the disk", each/mi)
	// All are seen now; then the last four are used, and the first one stays in use.
	if p := answer(g.d, (*admin.Client).GC); len(p.ImagesStay) < len(ids) {
		t.Fatalf("not all images are known: %s", jsonText(p))
	}
	used, err := g.create(ids[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.removeContainer(used)
	time.Sleep(10 * time.Millisecond)
	for i := 4; i < len(ids); i++ {
		c, err := g.create(ids[i], uint32(i))
		if err != nil {
			t.Fatal(err)
		}
		g.removeContainer(c)
	}
	time.Sleep(3 * time.Second) // imageMinimumGCAge

	threshold := g.free() - 8*mi
	g.reload(threshold)
	need := each*5/2 - 4*mi // two images are not enough, three are
	g.fillTo(threshold - need)
	var report eviction.Report
	eventually(t, "enough is free again", 90*time.Second, func() bool {
		for _, r := range answer(g.d, explained).Decisions {
			if r.Outcome == eviction.OutcomeReclaimed {
				report = r
				return true
			}
		}
		return false
	})
	if done := report.Resource.Reclaimed; done == nil || done.Images != 3 || done.Containers != 0 || int64(done.Freed) < need {
		t.Errorf("%d MiB were needed, %d MiB an image: %s", need/mi, each/mi, jsonText(report))
	}
	time.Sleep(3 * time.Second) // nothing more goes
	left := g.listed()
	var gone []int
	for i, id := range ids {
		if _, there := left[id]; !there {
			gone = append(gone, i)
		}
	}
	if !slices.Equal(gone, []int{1, 2, 3}) {
		t.Errorf("images %v are gone, want 1, 2, 3", gone)
	}
	g.mustHave(lab.PauseImage, lab.WorkloadImage, "app-0")
	if free := g.free(); free < threshold {
		t.Errorf("%d MiB are free, the threshold is %d", free/mi, threshold/mi)
	}
	if n := len(g.d.evictions()); n > 0 {
		t.Errorf("%d pods were evicted", n)
	}
}

// explained asks for the last decisions.
func explained(c *admin.Client, ctx context.Context) (admin.Explanation, error) {
	return c.Explain(ctx, "")
}
