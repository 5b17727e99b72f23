// Package images makes the container images critest pulls and serves them as a
// registry does. Nothing is fetched: what is in them are a few programs of
// Debian and our own stand-ins. The same programs give the same digests.
package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Media types of OCI images.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// file is an entry of a layer. A name that ends in "/" is a folder.
type file struct {
	name string
	mode int64
	data []byte
	link string // hard link to this name
}

// layer is an uncompressed layer and its digest.
type layer struct {
	tar    []byte
	digest string
}

func newLayer(files ...file) (layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: epoch(), Format: tar.FormatPAX,
		}
		switch {
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.link
		}
		if err := w.WriteHeader(h); err != nil {
			return layer{}, fmt.Errorf("images: %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return layer{}, fmt.Errorf("images: %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return layer{}, fmt.Errorf("images: layer: %w", err)
	}
	return layer{tar: buf.Bytes(), digest: digest(buf.Bytes())}, nil
}

// runConfig is the part of an image's configuration that says what to run.
type runConfig struct {
	User         string              `json:",omitempty"`
	ExposedPorts map[string]struct{} `json:",omitempty"`
	Env          []string            `json:",omitempty"`
	Entrypoint   []string            `json:",omitempty"`
	Cmd          []string            `json:",omitempty"`
	StopSignal   string              `json:",omitempty"`
}

// image is what a registry needs to know of one image.
type image struct {
	manifest []byte
	blobs    map[string][]byte // configuration and layers by digest
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

func newImage(run runConfig, layers ...layer) (image, error) {
	type rootfs struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	config := struct {
		Created      string    `json:"created"`
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		Config       runConfig `json:"config"`
		RootFS       rootfs    `json:"rootfs"`
	}{Created: epoch().Format(time.RFC3339), Architecture: runtime.GOARCH, OS: "linux", Config: run, RootFS: rootfs{Type: "layers"}}
	manifest := struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}{SchemaVersion: 2, MediaType: typeManifest}

	img := image{blobs: map[string][]byte{}}
	for _, l := range layers {
		img.blobs[l.digest] = l.tar
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.digest) // uncompressed: the same
		manifest.Layers = append(manifest.Layers, descriptor{typeLayer, l.digest, len(l.tar)})
	}
	body, err := json.Marshal(config)
	if err != nil {
		return image{}, fmt.Errorf("images: configuration: %w", err)
	}
	img.blobs[digest(body)] = body
	manifest.Config = descriptor{typeConfig, digest(body), len(body)}
	if img.manifest, err = json.Marshal(manifest); err != nil {
		return image{}, fmt.Errorf("images: manifest: %w", err)
	}
	return img, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// epoch is the time of everything in an image.
func epoch() time.Time { return time.Unix(0, 0).UTC() }
