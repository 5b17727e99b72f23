package gc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// UseFile keeps the uses of images over restarts: one JSON file that is replaced
// as a whole.
type UseFile struct{ Path string }

// useDocument is the file. Another version is one that nobody here can read.
type useDocument struct {
	Version int            `json:"version"`
	Images  map[string]Use `json:"images"`
}

const useVersion = 1

// Load reads it; without a file nothing is known and there is no error. Whatever
// is wrong with it, all images then count as used now.
func (f UseFile) Load() (map[string]Use, error) {
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("uses of images: %w", err)
	}
	var d useDocument
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("uses of images: %s: %w", f.Path, err)
	}
	if d.Version != useVersion {
		return nil, fmt.Errorf("uses of images: %s has version %d, this program writes %d", f.Path, d.Version, useVersion)
	}
	return d.Images, nil
}

// Save replaces it; after an error, on a full disk for example, the old one is
// still there.
func (f UseFile) Save(all map[string]Use) error {
	b, err := json.Marshal(useDocument{Version: useVersion, Images: all})
	if err != nil {
		return fmt.Errorf("uses of images: %w", err)
	}
	// Always the same name: what a kill in the middle leaves is written over.
	part, err := os.OpenFile(f.Path+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("uses of images: %w", err)
	}
	_, err = part.Write(b)
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), f.Path)
	}
	if err != nil {
		// The part is of no use to anybody; that it stays is the lesser trouble.
		_ = os.Remove(part.Name())
		return fmt.Errorf("uses of images: %w", err)
	}
	return nil
}
