package images

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Registry serves images by the part of the OCI distribution protocol that
// pulling needs. A repository is found by its path alone: a runtime asks the
// same server for all registries.
type Registry struct {
	mu        sync.Mutex
	manifests map[string]map[string][]byte // repository → tag or digest → manifest
	blobs     map[string][]byte            // by digest
}

// NewRegistry returns one that serves nothing yet.
func NewRegistry() *Registry {
	return &Registry{manifests: map[string]map[string][]byte{}, blobs: map[string][]byte{}}
}

// add serves an image as "repository:tag".
func (r *Registry) add(name string, img image) {
	repository, tag, _ := strings.Cut(name, ":")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.manifests[repository] == nil {
		r.manifests[repository] = map[string][]byte{}
	}
	r.manifests[repository][tag] = img.manifest
	r.manifests[repository][digest(img.manifest)] = img.manifest
	for d, b := range img.blobs {
		r.blobs[d] = b
	}
}

// AddData serves, as "repository:tag", an image with one file of this content, which
// is no program. The same content gives the same image.
func (r *Registry) AddData(name string, content []byte) error {
	l, err := newLayer(file{name: "data", mode: 0o644, data: content})
	if err != nil {
		return err
	}
	img, err := newImage(runConfig{Cmd: []string{"/data"}}, l)
	if err != nil {
		return err
	}
	r.add(name, img)
	return nil
}

// Names returns how many repositories and tags are served.
func (r *Registry) Names() (repositories, tags int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, byRef := range r.manifests {
		for ref := range byRef {
			if !strings.HasPrefix(ref, "sha256:") {
				tags++
			}
		}
	}
	return len(r.manifests), tags
}

// ServeHTTP implements http.Handler: GET and HEAD of /v2/,
// /v2/<repository>/manifests/<tag or digest> and /v2/<repository>/blobs/<digest>.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		http.Error(w, "only pulling is possible", http.StatusMethodNotAllowed)
		return
	}
	path, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	if !ok {
		http.NotFound(w, req)
		return
	}
	if path == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	kind, body := r.content(path)
	if body == nil {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", digest(body))
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body))
}

// content is what is at a path below /v2/, nil for nothing.
func (r *Registry) content(path string) (kind string, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if repository, ref, ok := strings.Cut(path, "/manifests/"); ok {
		return typeManifest, r.manifests[repository][ref]
	}
	_, d, _ := strings.Cut(path, "/blobs/")
	return "application/octet-stream", r.blobs[d]
}
