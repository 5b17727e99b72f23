package e2e

import (
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/test/conformance/images"
)

// registry serves images on loopback, which runtimes ask without TLS.
type registry struct {
	t      *testing.T
	images *images.Registry
	host   string
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{t: t, images: images.NewRegistry()}
	server := httptest.NewServer(r.images)
	t.Cleanup(server.Close)
	r.host = strings.TrimPrefix(server.URL, "http://")
	return r
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
