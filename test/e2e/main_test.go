// Package e2e runs the built binary in front of a real containerd with real
// containers. It needs root and gets everything else itself (internal/lab).
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// built are the binaries under test, made once per run.
type built struct {
	dir   string
	once  map[string]*sync.Once
	paths map[string]string
	errs  map[string]error
	mu    sync.Mutex
}

var binaries = &built{once: map[string]*sync.Once{}, paths: map[string]string{}, errs: map[string]error{}}

func TestMain(m *testing.M) {
	dir, remove, err := lab.NewScratch()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries.dir = dir
	code := m.Run()
	remove()
	os.Exit(code)
}

// binary builds cri-evictd with the race detector, and with a build tag if one
// is given; a machine without a compiler has them in a folder (see surroundings).
func binary(t *testing.T, tag string) string {
	t.Helper()
	if dir := here(t).binaries; dir != "" {
		return filepath.Join(dir, "cri-evictd"+tag)
	}
	binaries.mu.Lock()
	once, ok := binaries.once[tag]
	if !ok {
		once = &sync.Once{}
		binaries.once[tag] = once
	}
	binaries.mu.Unlock()
	once.Do(func() {
		path := filepath.Join(binaries.dir, "cri-evictd"+tag)
		cmd := exec.Command("go", "build", "-race", "-tags", tag, "-o", path, "github.com/cri-evictd/cri-evictd/cmd/cri-evictd")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("building cri-evictd: %w\n%s", err, out)
		}
		binaries.mu.Lock()
		binaries.paths[tag], binaries.errs[tag] = path, err
		binaries.mu.Unlock()
	})
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	if err := binaries.errs[tag]; err != nil {
		t.Fatal(err)
	}
	return binaries.paths[tag]
}

// needRoot skips where containers cannot be run; .ci/run runs as root.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a real containerd with real containers")
	}
}

// eventually waits for a condition with a deadline that a loaded machine can
// hold.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	within *= here(t).slowness
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, within)
}

// patience bounds a single call of a test.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute*here(t).slowness)
	t.Cleanup(cancel)
	return ctx
}
