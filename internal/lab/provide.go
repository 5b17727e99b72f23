package lab

import (
	"context"
	"io"
	"os"
	"runtime"
)

// Cached returns the folder of a unit of the cache, which is where Ensure keeps
// its programs. If an executable of want (paths below the folder) is missing,
// fill makes the unit, once, in the folder it is given: another process that
// asks at the same time waits. name says what the unit holds and in which
// version; the architecture is added. What is done, and how many seconds it
// took, goes to log.
func Cached(ctx context.Context, log io.Writer, name string, want []string, fill func(ctx context.Context, dir string) error) (string, error) {
	c, err := openCache(log)
	if err != nil {
		return "", err
	}
	return c.unit(ctx, name+"-"+runtime.GOARCH, want, fill)
}

// CacheRoot returns the folder all units of the cache lie in, whether or not it
// exists. It can be handed to another machine of the same Debian release and
// architecture, read-only, once Ensure has filled it.
func CacheRoot() (string, error) { return cacheRoot() }

// DebianPackages unpacks packages of this host's Debian release into a unit of
// the cache and returns its folder, as Cached does. Nothing is installed.
//
// errors.Is(err, ErrUnsupported) where there is no apt-get or dpkg.
func DebianPackages(ctx context.Context, log io.Writer, name string, want []string, packages ...string) (string, error) {
	c, err := openCache(log)
	if err != nil {
		return "", err
	}
	return c.debian(ctx, "deb-"+name, want, packages...)
}

// RunGo runs the go command in dir as Ensure does: for this machine, static,
// modules on and no workspace. env is added to the environment ("CGO_ENABLED=1").
func RunGo(ctx context.Context, dir string, env []string, args ...string) error {
	c, err := openCache(io.Discard)
	if err != nil {
		return err
	}
	return runGo(ctx, c, dir, env, args...)
}

func openCache(log io.Writer) (cache, error) {
	root, err := cacheRoot()
	if err != nil {
		return cache{}, err
	}
	return cache{root: root, log: log}, nil
}

// hostRelease is the Debian release in a word, "debian12".
func hostRelease() string {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		release = nil // no Debian, or one that does not say which
	}
	return releaseName(string(release))
}
