package e2e

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/test/conformance/images"
)

// registry serves images on loopback, which runtimes ask without TLS.
type registry struct {
	t      *testing.T
	images *images.Registry
	host   string
	// pause comes after each slowPiece of an answer, ns.
	pause atomic.Int64
}

// slowPiece is how much is sent at once by a slow registry.
const slowPiece = 32 << 10

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{t: t, images: images.NewRegistry()}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
}

// slow has the registry pause after each piece of what it sends.
func (r *registry) slow(pause time.Duration) { r.pause.Store(int64(pause)) }

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.images.ServeHTTP(pausing{w, time.Duration(r.pause.Load())}, req)
}

// pausing writes in pieces.
type pausing struct {
	http.ResponseWriter
	pause time.Duration
}

func (p pausing) Write(b []byte) (n int, err error) {
	for piece := range slices.Chunk(b, slowPiece) {
		done, err := p.ResponseWriter.Write(piece)
		if n += done; err != nil {
			return n, err
		}
		if len(piece) == slowPiece {
			time.Sleep(p.pause)
		}
	}
	return n, nil
}

// image makes one with a single layer of so many random bytes and returns its
// name. The same seed gives the same image.
func (r *registry) image(name string, size int, seed uint64) string {
	r.t.Helper()
	content := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(content) // never fails
	if err := r.images.AddData(name+":1", content); err != nil {
		r.t.Fatal(err)
	}
	return r.host + "/" + name + ":1"
}
