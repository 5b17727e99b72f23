// Package labtest gives tests what the lab starts, and takes it away at their end.
package labtest

import (
	"context"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// Scratch returns a folder for everything of this test; nothing of it, nor anything
// that was started or mounted there, may be left afterwards.
func Scratch(t testing.TB) string {
	t.Helper()
	dir, remove, err := lab.NewScratch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		remove()
		for _, l := range lab.Leftovers(dir) {
			t.Errorf("left behind: %s", l)
		}
	})
	return dir
}

// Containerd starts one that ends with the test. ctx limits its start alone.
func Containerd(ctx context.Context, t testing.TB, opts lab.ContainerdOptions) *lab.Containerd {
	t.Helper()
	ctd, err := lab.StartContainerd(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ctd.Cleanup(); err != nil {
			t.Errorf("cleanup: %v", err)
		}
	})
	return ctd
}
