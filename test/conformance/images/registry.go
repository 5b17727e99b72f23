package images

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// Registry serves images by the part of the OCI distribution protocol that
// pulling needs. A repository is found by its path alone: a runtime asks the
// same server for all registries.
type Registry struct {
	manifests map[string]map[string][]byte // repository → tag or digest → manifest
	blobs     map[string][]byte            // by digest
}

func newRegistry() *Registry {
	return &Registry{manifests: map[string]map[string][]byte{}, blobs: map[string][]byte{}}
}

// add serves an image as "repository:tag".
func (r *Registry) add(name string, img image) {
	repository, tag, _ := strings.Cut(name, ":")
	if r.manifests[repository] == nil {
		r.manifests[repository] = map[string][]byte{}
	}
	r.manifests[repository][tag] = img.manifest
	r.manifests[repository][digest(img.manifest)] = img.manifest
	for d, b := range img.blobs {
		r.blobs[d] = b
	}
}

// Names returns how many repositories and tags are served.
func (r *Registry) Names() (repositories, tags int) {
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
	var body []byte
	kind := "application/octet-stream"
	if repository, ref, ok := strings.Cut(path, "/manifests/"); ok {
		body, kind = r.manifests[repository][ref], typeManifest
	} else if _, d, ok := strings.Cut(path, "/blobs/"); ok {
		body = r.blobs[d]
	} else if path == "" {
		w.WriteHeader(http.StatusOK)
		return
	}
	if body == nil {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", digest(body))
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body))
}
