package units

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/test/conformance/images"
)

// layerSize is far above the sizes of manifests and of what sockets buffer.
const layerSize = 2 << 20

// puller pulls images through kubelet's socket from a registry on loopback that
// stops in the middle of a layer until it is told to go on.
type puller struct {
	m        *machine
	registry *images.Registry
	host     string
	client   runtimeapi.ImageServiceClient
	half     chan struct{} // half a layer was sent
	goOn     chan struct{}
	pulled   int
}

func (m *machine) puller() *puller {
	m.t.Helper()
	p := &puller{
		m: m, registry: images.NewRegistry(), client: runtimeapi.NewImageServiceClient(m.dial(socket)),
		half: make(chan struct{}), goOn: make(chan struct{}),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.registry.ServeHTTP(&stopsHalfway{ResponseWriter: w, request: r, p: p}, r)
	}))
	m.t.Cleanup(server.Close)
	p.host = strings.TrimPrefix(server.URL, "http://")
	return p
}

// stopsHalfway is an answer that stops in the middle if it is as long as a layer.
type stopsHalfway struct {
	http.ResponseWriter
	request *http.Request
	p       *puller
	sent    int
}

func (w *stopsHalfway) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	before, ctx := w.sent, w.request.Context()
	w.sent += n
	if before < layerSize/2 && w.sent >= layerSize/2 {
		for _, step := range []func() bool{
			func() bool { return wait(ctx, w.p.half, true) },
			func() bool { return wait(ctx, w.p.goOn, false) },
		} {
			if !step() {
				return n, ctx.Err()
			}
		}
	}
	return n, err
}

// wait sends to c, or receives from it; false when ctx ended first.
func wait(ctx context.Context, c chan struct{}, send bool) bool {
	var in, out chan struct{}
	if in = c; send {
		in, out = nil, c
	}
	select {
	case <-in:
		return true
	case out <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin starts the pull of an image that the runtime does not have, and returns when
// it has half of it. It gets the rest when over says so, and end waits for its end.
func (p *puller) begin(over func() bool) (end func()) {
	t := p.m.t
	t.Helper()
	p.pulled++
	content := make([]byte, layerSize)
	_, _ = rand.NewChaCha8([32]byte{byte(p.pulled)}).Read(content) // never fails
	repository := fmt.Sprintf("pulled-%d", p.pulled)
	must(t, p.registry.AddData(repository+":1", content))
	image := &runtimeapi.ImageSpec{Image: p.host + "/" + repository + ":1"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute*p.m.slow)
	done := make(chan error, 1)
	go func() {
		_, err := p.client.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image})
		done <- err
	}()
	select {
	case err := <-done:
		cancel()
		t.Fatalf("pull %d ended before it was half done: %v", p.pulled, err)
	case <-p.half:
	}
	wentOn := make(chan bool, 1)
	go func() {
		for ctx.Err() == nil && !over() {
			sleep(ctx, 500*time.Millisecond)
		}
		wentOn <- wait(ctx, p.goOn, true)
	}()
	return func() {
		t.Helper()
		defer cancel()
		if err := <-done; err != nil {
			t.Fatalf("pull %d: %v", p.pulled, err)
		}
		if !<-wentOn {
			t.Fatalf("pull %d ended while its registry waited", p.pulled)
		}
		got, err := p.client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image})
		if err != nil || got.GetImage().GetSize() < layerSize {
			t.Errorf("pull %d: the image is %v, %v", p.pulled, got.GetImage(), err)
		}
		_, err = p.client.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: image})
		must(t, err)
	}
}

// handedOver says whether systemd takes another process for the proxy than before.
func (m *machine) handedOver(before int) func() bool {
	return func() bool {
		now, err := m.try("systemctl", "show", "--property=MainPID", "--value", unitProx)
		return err == nil && now != strconv.Itoa(before)
	}
}
