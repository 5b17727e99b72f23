package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// gcPasses is how many breaches TestImagesBeingUsedSurvive makes; `make soak-gc`
// has 200.
func gcPasses(t *testing.T) int {
	t.Helper()
	text := os.Getenv("CRI_EVICTD_GC_PASSES")
	if text == "" {
		return 3
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const (
	busyImages  = 31
	busyWorkers = 3
	// busyPace is how often a worker uses one of its images: each rests for longer
	// than imageMinimumGCAge.
	busyPace = 500 * time.Millisecond
)

// busy uses images as kubelet does, from several sides at once.
type busy struct {
	*gcNode
	names          []string
	pulls, creates atomic.Int64
	// attempt tells the containers apart.
	attempt atomic.Uint32
}

// work asks for one image after the other, pulls it where it is not there, and each
// third one anyway (imagePullPolicy Always), and creates a container of it.
func (b *busy) work(t *testing.T, worker int, stop <-chan struct{}) {
	for i := worker; ; i += busyWorkers {
		select {
		case <-stop:
			return
		case <-time.After(busyPace):
		}
		name := b.names[1+i%(len(b.names)-1)]
		spec := &runtimeapi.ImageSpec{Image: name}
		st, err := b.images.ImageStatus(patience(t), &runtimeapi.ImageStatusRequest{Image: spec})
		if err != nil {
			t.Errorf("status of %s: %v", name, err)
			return
		}
		id := st.GetImage().GetId()
		if id == "" || i%3 == 0 {
			r, err := b.images.PullImage(patience(t), &runtimeapi.PullImageRequest{Image: spec})
			if err != nil {
				t.Errorf("pulling %s: %v", name, err)
				return
			}
			id = r.GetImageRef()
			b.pulls.Add(1)
		}
		c, err := b.create(id, b.attempt.Add(1))
		if err != nil {
			t.Errorf("the image of %s was removed between its pull and the creation: %v", name, err)
			return
		}
		b.creates.Add(1)
		if _, err := b.d.cri.RemoveContainer(patience(t), &runtimeapi.RemoveContainerRequest{ContainerId: c}); err != nil {
			t.Errorf("removing a container: %v", err)
			return
		}
	}
}

// While images are removed again and again, others pull and create: whoever asks
// for an image, pulls it where it is not there and creates a container of it gets
// one. The sandbox image and one that a container has stay all the time.
func TestImagesBeingUsedSurvive(t *testing.T) {
	const size = 8 * mi
	b := &busy{gcNode: newGCNode(t, lab.Current, 1536*mi)}
	for i := range busyImages {
		b.names = append(b.names, b.registry.image(fmt.Sprintf("busy-%d", i), size, uint64(i)))
	}
	keeper, err := b.create(b.pull(b.names[0]), b.attempt.Add(1))
	if err != nil {
		t.Fatal(err)
	}
	defer b.removeContainer(keeper)
	for _, n := range b.names[1:] {
		b.pull(n)
	}
	answer(b.d, (*admin.Client).GC)
	// All images are there; without them there is that much more.
	threshold := b.free() - 4*mi
	b.reload(threshold)
	b.registry.slow(5 * time.Millisecond) // a pull takes more than a second: others go meanwhile

	stop := make(chan struct{})
	var workers sync.WaitGroup
	for w := range busyWorkers {
		workers.Go(func() { b.work(t, w, stop) })
	}
	removed := map[time.Time]int{}
	for range gcPasses(t) {
		b.fillTo(threshold - 20*mi)
		for end := time.Now().Add(8 * time.Second); time.Now().Before(end) && b.free() < threshold; {
			time.Sleep(50 * time.Millisecond)
		}
		b.mustHave(lab.PauseImage, "busy-0")
		b.fillTo(0)
		eventually(t, "the breach is over", 30*time.Second, func() bool {
			s, err := b.d.admin().Status(t.Context())
			return err == nil && slices.ContainsFunc(s.Engine.Signals, func(x eviction.SignalNow) bool {
				return x.Signal == eviction.ImageFsAvailable && slices.ContainsFunc(x.Thresholds, func(h eviction.ThresholdNow) bool { return !h.Met })
			})
		})
		for _, r := range answer(b.d, (*admin.Client).GC).Runs {
			removed[r.Time] = r.Images
		}
	}
	close(stop)
	workers.Wait()
	all := 0
	for _, n := range removed {
		all += n
	}
	t.Logf("%d images removed in %d passes, %d pulls, %d containers created", all, len(removed), b.pulls.Load(), b.creates.Load())
	if all == 0 || b.creates.Load() == 0 || b.pulls.Load() == 0 {
		t.Error("nothing was removed, pulled or created: the test shows nothing")
	}
}
