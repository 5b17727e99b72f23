package lab

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func readTar(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = body
	}
}

func TestDockerArchive(t *testing.T) {
	var buf bytes.Buffer
	if err := writeDockerArchive(&buf, []byte("ELF"), labImages()); err != nil {
		t.Fatal(err)
	}
	files := readTar(t, buf.Bytes())
	var manifests []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifests); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{WorkloadImage: "/workload", PauseImage: "/workload pause"}
	if len(manifests) != len(want) {
		t.Fatalf("%d images; want %d", len(manifests), len(want))
	}
	for _, m := range manifests {
		var config struct {
			Architecture, OS string
			Config           struct{ Entrypoint []string }
			Rootfs           struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		if err := json.Unmarshal(files[m.Config], &config); err != nil {
			t.Fatalf("%v: config %q: %v", m.RepoTags, m.Config, err)
		}
		if got := strings.Join(config.Config.Entrypoint, " "); got != want[m.RepoTags[0]] {
			t.Errorf("%v: entrypoint %q; want %q", m.RepoTags, got, want[m.RepoTags[0]])
		}
		layer, ok := files[m.Layers[0]]
		if len(m.Layers) != 1 || !ok {
			t.Fatalf("%v: layers %q; want one that is in the archive", m.RepoTags, m.Layers)
		}
		if id := "sha256:" + digest(layer); len(config.Rootfs.DiffIDs) != 1 || config.Rootfs.DiffIDs[0] != id {
			t.Errorf("%v: diff_ids %q; want %q", m.RepoTags, config.Rootfs.DiffIDs, id)
		}
		if got := readTar(t, layer); string(got["workload"]) != "ELF" {
			t.Errorf("%v: layer has %q; want the binary as workload", m.RepoTags, got)
		}
	}

	var again bytes.Buffer
	if err := writeDockerArchive(&again, []byte("ELF"), labImages()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(buf.Bytes(), again.Bytes()) {
		t.Error("the same input gives another archive: digests would change from run to run")
	}
}

type fullDisk struct{ left int }

func (w *fullDisk) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(b), nil
}

func TestDockerArchiveWriteError(t *testing.T) {
	var whole bytes.Buffer
	if err := writeDockerArchive(&whole, []byte("ELF"), labImages()); err != nil {
		t.Fatal(err)
	}
	for left := 0; left < whole.Len(); left += 512 {
		if err := writeDockerArchive(&fullDisk{left: left}, []byte("ELF"), labImages()); err == nil {
			t.Fatalf("no error with room for %d of %d bytes", left, whole.Len())
		}
	}
}
