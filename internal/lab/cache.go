package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cacheEnv names the cache folder; see Ensure.
const cacheEnv = "CRI_EVICTD_CACHE"

// cacheRoot returns the folder the programs are kept in.
func cacheRoot() (string, error) {
	if dir := os.Getenv(cacheEnv); dir != "" {
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("lab: %s=%q: must be an absolute path", cacheEnv, dir)
		}
		return filepath.Clean(dir), nil
	}
	// Fails where there is no home folder, as in a bare init or a VM.
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "cri-evictd"), nil
	}
	return "/var/cache/cri-evictd", nil
}

// cache is a folder of finished units. A unit is a folder that is there only
// when it is complete: it is filled under another name and then renamed.
type cache struct {
	root string
	log  io.Writer
}

// unit returns the folder of the named unit. It is filled by fill, once, if a
// file of want (paths below the unit) is missing.
func (c cache) unit(ctx context.Context, name string, want []string, fill func(ctx context.Context, dir string) error) (string, error) {
	final := filepath.Join(c.root, name)
	if complete(final, want) {
		return final, nil
	}
	if err := os.MkdirAll(c.root, 0o755); err != nil {
		return "", fmt.Errorf("lab: cache folder: %w", err)
	}
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(final, want) {
		return final, nil // somebody else built it while we waited
	}

	// We hold the lock of this unit, so these belong to builders that died.
	stale, err := filepath.Glob(filepath.Join(c.root, ".part-"+name+"-*"))
	if err != nil {
		return "", fmt.Errorf("lab: cache unit %q: %w", name, err)
	}
	for _, dir := range append(stale, final) {
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("lab: remove incomplete cache unit: %w", err)
		}
	}

	part, err := os.MkdirTemp(c.root, ".part-"+name+"-")
	if err != nil {
		return "", fmt.Errorf("lab: cache unit %q: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(part) }() // the next builder removes it
	start := time.Now()
	fmt.Fprintf(c.log, "lab: %s: getting it (cache: %s)\n", name, c.root)
	if err := fill(ctx, part); err != nil {
		return "", fmt.Errorf("lab: %s: %w", name, err)
	}
	if missing := firstMissing(part, want); missing != "" {
		return "", fmt.Errorf("lab: %s: built, but %s is not there", name, missing)
	}
	if err := os.Chmod(part, 0o755); err != nil { // MkdirTemp made it 0700
		return "", fmt.Errorf("lab: %s: %w", name, err)
	}
	if err := os.Rename(part, final); err != nil {
		return "", fmt.Errorf("lab: %s: %w", name, err)
	}
	fmt.Fprintf(c.log, "lab: %s: done in %.1f s\n", name, time.Since(start).Seconds())
	return final, nil
}

// lock takes the builders' lock of one unit, or fails when ctx ends.
func (c cache) lock(ctx context.Context, name string) (unlock func(), err error) {
	path := filepath.Join(c.root, ".lock-"+name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lab: cache lock: %w", err)
	}
	// A blocking flock could not be given up when ctx ends.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // releases the lock
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close() // nothing was written
			return nil, fmt.Errorf("lab: lock %s: %w", path, err)
		}
		if !said {
			fmt.Fprintf(c.log, "lab: %s: another process is building it, waiting\n", name)
			said = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close() // nothing was written
			return nil, fmt.Errorf("lab: waiting for another process to build %s: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}

func complete(dir string, want []string) bool { return firstMissing(dir, want) == "" }

// firstMissing returns the first path of want that is no regular, executable
// file below dir.
func firstMissing(dir string, want []string) string {
	for _, p := range want {
		info, err := os.Stat(filepath.Join(dir, p))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 || info.Size() == 0 {
			return p
		}
	}
	return ""
}

// lastLines cuts command output for an error message.
func lastLines(out []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
