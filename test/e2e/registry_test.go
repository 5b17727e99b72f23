package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// registry serves images on loopback, which runtimes ask without TLS.
type registry struct {
	t      *testing.T
	host   string
	server *httptest.Server
	// manifests by "repository:reference", blobs by digest; filled before the first
	// pull.
	manifests, blobs map[string][]byte
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{t: t, manifests: map[string][]byte{}, blobs: map[string][]byte{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.host = l.Addr().String()
	r.server = httptest.NewUnstartedServer(r)
	_ = r.server.Listener.Close() // the one it made by itself
	r.server.Listener = l
	r.server.Start()
	t.Cleanup(r.server.Close)
	return r
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// image makes one with a single layer of so many random bytes and returns its
// name. The same seed gives the same image.
func (r *registry) image(name string, size int, seed uint64) string {
	r.t.Helper()
	content := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(content) // never fails
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "data", Mode: 0o644, Size: int64(size), ModTime: time.Unix(0, 0)})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	config := r.json(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/data"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{sum(layer.Bytes())}},
	})
	manifest := r.json(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": map[string]any{"mediaType": configType, "digest": sum(config), "size": len(config)},
		"layers": []any{map[string]any{"mediaType": layerType, "digest": sum(layer.Bytes()), "size": layer.Len()}},
	})
	r.blobs[sum(config)], r.blobs[sum(layer.Bytes())] = config, layer.Bytes()
	r.manifests[name+":1"], r.manifests[name+":"+sum(manifest)] = manifest, manifest
	return fmt.Sprintf("%s/%s:1", r.host, name)
}

func (r *registry) json(v any) []byte {
	r.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(h[:])
}

// ServeHTTP implements http.Handler: the part of the OCI distribution protocol that
// pulling needs.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	if repository, reference, ok := strings.Cut(path, "/manifests/"); ok {
		r.answer(w, req, manifestType, r.manifests[repository+":"+reference])
		return
	}
	if _, digest, ok := strings.Cut(path, "/blobs/"); ok {
		r.answer(w, req, "application/octet-stream", r.blobs[digest])
		return
	}
	if path != "" {
		http.NotFound(w, req)
	}
}

func (r *registry) answer(w http.ResponseWriter, req *http.Request, kind string, body []byte) {
	if body == nil {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", sum(body))
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body))
}
