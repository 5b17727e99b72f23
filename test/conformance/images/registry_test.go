package images

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func testRegistry(t *testing.T) *Registry {
	t.Helper()
	r, err := ForCritest(Programs{
		Busybox: Rootfs{"bin/busybox": []byte("program"), "lib/x/libc.so.6": []byte("library")}, Guest: []byte("guest"), Commands: []string{"ls", "sh"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPull follows every image from its tag to its last blob, as a runtime does.
func TestPull(t *testing.T) {
	registry := testRegistry(t)
	server := httptest.NewServer(registry)
	t.Cleanup(server.Close)
	get := func(path, wantType, wantDigest string) []byte {
		t.Helper()
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != wantType {
			t.Fatalf("GET %s: %s, %s", path, resp.Status, resp.Header.Get("Content-Type"))
		}
		if wantDigest != "" && digest(body) != wantDigest {
			t.Fatalf("GET %s: content has digest %s", path, digest(body))
		}
		if d := resp.Header.Get("Docker-Content-Digest"); d != digest(body) {
			t.Fatalf("GET %s: digest header %q", path, d)
		}
		return body
	}
	if repositories, tags := registry.Names(); repositories < 15 || tags < repositories {
		t.Fatalf("%d repositories, %d tags", repositories, tags)
	}
	for repository, refs := range registry.manifests {
		for ref := range refs {
			var m struct {
				Config descriptor
				Layers []descriptor
			}
			if err := json.Unmarshal(get("/v2/"+repository+"/manifests/"+ref, typeManifest, ""), &m); err != nil {
				t.Fatal(err)
			}
			if len(m.Layers) == 0 {
				t.Errorf("%s:%s has no layer", repository, ref)
			}
			for _, d := range append(m.Layers, m.Config) {
				if body := get("/v2/"+repository+"/blobs/"+d.Digest, "application/octet-stream", d.Digest); len(body) != d.Size {
					t.Errorf("%s:%s: %s has %d bytes, the manifest says %d", repository, ref, d.Digest, len(body), d.Size)
				}
			}
		}
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/v2/", http.StatusOK},
		{http.MethodHead, "/v2/pause/manifests/3.9", http.StatusOK},
		{http.MethodGet, "/v2/pause/manifests/3.8", http.StatusNotFound},
		{http.MethodGet, "/v2/nothing/manifests/latest", http.StatusNotFound},
		{http.MethodGet, "/v2/pause/blobs/sha256:00", http.StatusNotFound},
		{http.MethodGet, "/other", http.StatusNotFound},
		{http.MethodPut, "/v2/pause/manifests/3.9", http.StatusMethodNotAllowed},
	}
	registry := testRegistry(t)
	for _, tt := range tests {
		w := httptest.NewRecorder()
		registry.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.want)
		}
	}
}

// TestSameDigests: both runs, and two runs of the whole, have the same images.
func TestSameDigests(t *testing.T) {
	a, b := testRegistry(t), testRegistry(t)
	if len(a.blobs) != len(b.blobs) {
		t.Fatalf("%d and %d blobs", len(a.blobs), len(b.blobs))
	}
	for d := range a.blobs {
		if b.blobs[d] == nil {
			t.Errorf("blob %s is in one only", d)
		}
	}
	tags := a.manifests[staging+"test-image-tags"]
	if digest(tags["1"]) != digest(tags["2"]) || digest(tags["1"]) != digest(tags["3"]) {
		t.Error("the tags of test-image-tags are different images")
	}
	if digest(a.manifests[staging+"test-image-1"]["latest"]) == digest(a.manifests[staging+"test-image-2"]["latest"]) {
		t.Error("test-image-1 and test-image-2 are the same image")
	}
}
