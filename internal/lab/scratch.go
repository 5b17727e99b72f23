package lab

import "os"

// NewScratch makes a folder with a short path. remove removes it.
func NewScratch() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("/tmp", "celab-")
	return dir, func() { os.RemoveAll(dir) }, err //nolint:errcheck // stub
}
