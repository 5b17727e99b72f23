package proxy

import (
	"runtime"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// ours counts goroutines that run code of the proxy (not of its tests).
func ours() (n int) {
	buf := make([]byte, 4<<20)
	all := string(buf[:runtime.Stack(buf, true)])
	for _, g := range strings.Split(all, "\n\n") {
		for _, part := range []string{"proxy.(*Proxy)", "proxy.(*upstream)", "proxy.(*eventsService)", "proxy.pumpRequests"} {
			if strings.Contains(g, part) {
				n++
				break
			}
		}
	}
	return n
}

func TestNothingRunsAfterTheEnd(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.DrainTimeout = time.Second }) // a call hangs
	r.subscribeTo()
	if _, err := r.cri().GetContainerEvents(r.ctx(), &runtimeapi.GetEventsRequest{}); err != nil {
		t.Fatal(err)
	}
	r.inFlight("GetContainerEvents", 1)
	r.runtime.Inject("Status", fakecri.Fault{Hang: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		exchange(r.ctx(), r.through, "/runtime.v1.RuntimeService/Status", "", nil)
	}()
	r.inFlight("Status", 1)
	if n := ours(); n < 4 {
		t.Fatalf("%d goroutines: the test does not see them", n)
	}
	r.stop()
	r.waitStopped()
	<-done
	eventually(t, "all goroutines ended", func() bool { return ours() == 0 })
}
