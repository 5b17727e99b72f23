package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// Images a lab's containerd has. Both hold the workload binary only. The
// ".invalid" top-level domain never resolves, so that a missing image is an
// error and not a pull from somewhere.
const (
	WorkloadImage = "lab.invalid/workload:1" // entrypoint /workload
	PauseImage    = "lab.invalid/pause:1"    // entrypoint /workload pause
)

// image is one image of a docker-archive: a name and what it runs.
type image struct {
	name       string
	entrypoint []string
}

// labImages returns the images every lab imports.
func labImages() []image {
	return []image{
		{name: WorkloadImage, entrypoint: []string{"/workload"}},
		{name: PauseImage, entrypoint: []string{"/workload", "pause"}},
	}
}

// WriteImages writes both images, made of the workload binary, as an archive for
// `ctr images import`: for a containerd that is not the lab's.
func WriteImages(w io.Writer, workload []byte) error {
	return writeDockerArchive(w, workload, labImages())
}

// writeDockerArchive writes images of one layer, which holds the binary as
// /workload and an empty /tmp, in the format of `docker save`. The same input
// gives the same bytes.
func writeDockerArchive(w io.Writer, binary []byte, images []image) error {
	layer, err := layerTar(binary)
	if err != nil {
		return err
	}
	layerName := digest(layer) + ".tar"

	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifests []manifest
	out := tar.NewWriter(w)
	if err := addFile(out, layerName, 0o644, layer); err != nil {
		return err
	}
	for _, img := range images {
		config, err := json.Marshal(imageConfig(digest(layer), img.entrypoint))
		if err != nil {
			return fmt.Errorf("lab: image %s: %w", img.name, err)
		}
		configName := digest(config) + ".json"
		if err := addFile(out, configName, 0o644, config); err != nil {
			return err
		}
		manifests = append(manifests, manifest{
			Config: configName, RepoTags: []string{img.name}, Layers: []string{layerName},
		})
	}
	body, err := json.Marshal(manifests)
	if err != nil {
		return fmt.Errorf("lab: image manifest: %w", err)
	}
	if err := addFile(out, "manifest.json", 0o644, body); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("lab: image archive: %w", err)
	}
	return nil
}

// imageConfig is the OCI image configuration.
func imageConfig(layerDigest string, entrypoint []string) map[string]any {
	return map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      epoch().Format(time.RFC3339),
		"config": map[string]any{
			"Entrypoint": entrypoint,
			"WorkingDir": "/",
			"Env":        []string{"PATH=/"},
		},
		"rootfs": map[string]any{
			"type":     "layers",
			"diff_ids": []string{"sha256:" + layerDigest},
		},
		"history": []map[string]any{{"created": epoch().Format(time.RFC3339), "created_by": "internal/lab"}},
	}
}

func layerTar(binary []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	dir := &tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777, ModTime: epoch(), Format: tar.FormatPAX}
	if err := w.WriteHeader(dir); err != nil {
		return nil, fmt.Errorf("lab: image layer: %w", err)
	}
	if err := addFile(w, "workload", 0o755, binary); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("lab: image layer: %w", err)
	}
	return buf.Bytes(), nil
}

func addFile(w *tar.Writer, name string, mode int64, body []byte) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(body)),
		ModTime: epoch(), Format: tar.FormatPAX,
	}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("lab: image archive: %s: %w", name, err)
	}
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("lab: image archive: %s: %w", name, err)
	}
	return nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// epoch is the time of everything in an image, so that digests do not change.
func epoch() time.Time { return time.Unix(0, 0).UTC() }
