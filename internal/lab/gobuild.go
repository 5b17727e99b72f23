package lab

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// workloadSource is the workload's source. It is embedded so that the binary
// can be built wherever the test or demo happens to run.
//
//go:embed workload/*.go
var workloadSource embed.FS

// ensureGo installs commands of a tagged Go module into the cache.
func ensureGo(ctx context.Context, c cache, unit, tag string, packages ...string) (string, error) {
	want := make([]string, len(packages))
	args := []string{"install", "-ldflags=-s -w"}
	for i, p := range packages {
		want[i] = path.Base(p)
		args = append(args, p+"@"+tag)
	}
	return c.unit(ctx, unit+"-"+runtime.GOARCH, want, func(ctx context.Context, dir string) error {
		return runGo(ctx, c, dir, []string{"GOBIN=" + dir}, args...)
	})
}

// ensureWorkload builds the workload from its embedded source.
func ensureWorkload(ctx context.Context, c cache) (string, error) {
	names, err := fs.Glob(workloadSource, "workload/*.go")
	if err != nil {
		return "", fmt.Errorf("lab: workload source: %w", err)
	}
	sum := sha256.New()
	files := map[string][]byte{"go.mod": []byte("module workload\n\ngo 1.26.0\n")}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		body, err := workloadSource.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("lab: workload source: %w", err)
		}
		files[path.Base(name)] = body
		fmt.Fprintf(sum, "%s %d\n%s", name, len(body), body)
	}
	unit := "workload-" + hex.EncodeToString(sum.Sum(nil))[:12] + "-" + runtime.GOARCH
	dir, err := c.unit(ctx, unit, []string{"workload"}, func(ctx context.Context, dir string) error {
		src := filepath.Join(dir, "src")
		if err := os.Mkdir(src, 0o755); err != nil {
			return err
		}
		for name, body := range files {
			if err := os.WriteFile(filepath.Join(src, name), body, 0o644); err != nil {
				return err
			}
		}
		if err := runGo(ctx, c, src, nil, "build", "-ldflags=-s -w", "-o", "../workload", "."); err != nil {
			return err
		}
		return os.RemoveAll(src)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "workload"), nil
}

// runGo runs the go command so that the caller's environment does not change
// what comes out: static, for this machine, with no version control stamping.
func runGo(ctx context.Context, c cache, dir string, env []string, args ...string) error {
	goBin, err := findGo()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, goBin, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=0", "GOWORK=off",
		"GO111MODULE=on", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	cmd.Env = append(cmd.Env, env...)
	if os.Getenv("HOME") == "" {
		// A bare init or a VM: go has no place for its own caches.
		cmd.Env = append(cmd.Env, "HOME="+c.root)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, lastLines(out, 10))
	}
	return nil
}

// findGo finds the go command; under sudo it is often not in PATH.
func findGo() (string, error) {
	if p, err := exec.LookPath("go"); err == nil {
		return p, nil
	}
	for _, p := range []string{"/usr/local/go/bin/go", "/usr/lib/go/bin/go"} {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: the go command is needed, and is neither in PATH nor in /usr/local/go/bin", ErrUnsupported)
}
