package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestLoad(t *testing.T) {
	c, err := Load(file(t, head+"mode: observe\n"))
	if err != nil || c.Mode != Observe {
		t.Errorf("%v %v", c.Mode, err)
	}
}

// Whatever is wrong with the file, the result is fit for forwarding and the
// message names the file.
func TestLoadOfWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret.yaml")
	if err := os.WriteFile(secret, []byte(head), 0); err != nil {
		t.Fatal(err)
	}
	huge := file(t, head+"# "+strings.Repeat("x", maxFile)+"\n")
	for _, tt := range []struct {
		name, path, want string
		is               error
	}{
		{"missing", filepath.Join(dir, "none.yaml"), "no such file", fs.ErrNotExist},
		{"directory", dir, "is a directory", nil},
		{"huge", huge, "larger than 1 MiB", nil},
		{"unreadable", secret, "permission denied", fs.ErrPermission},
		{"wrong", file(t, head+"mode: x\n"), "mode: \"x\": must be one of", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "unreadable" && os.Geteuid() == 0 {
				// Root reads every file; this thread is nobody for files, and
				// ends with the goroutine that stays locked to it.
				runtime.LockOSThread()
				if err := unix.Setfsuid(65534); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Load(tt.path)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.path) {
				t.Fatalf("%v, want %q and the path", err, tt.want)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
			forwardable(t, c)
			if dump(c) != dump(Default().complete()) {
				t.Errorf("not the defaults:\n%s", dump(c))
			}
		})
	}
}

func TestLoadKeepsTheErrors(t *testing.T) {
	_, err := Load(file(t, head+"mode: x\nholdMaximum: y\n"))
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != 2 {
		t.Errorf("%v", err)
	}
}

// A broken file keeps what is right of it: a node with its own addresses goes
// on being served at them.
func TestBrokenFileKeepsItsAddresses(t *testing.T) {
	c, err := Load(file(t, head+"listen: /x/l.sock\nruntimeEndpoint: /x/r.sock\nevictionHard: {memory.available: lots}\n"))
	if err == nil || c.Listen.Path != "/x/l.sock" || c.RuntimeEndpoint.Path != "/x/r.sock" {
		t.Errorf("%s %s %v", c.Listen, c.RuntimeEndpoint, err)
	}
}

func TestConflictsAreResolvedForForwarding(t *testing.T) {
	for name, tt := range map[string]struct{ text, listen, runtime, proxy string }{
		"listen is the default runtime's": {"listen: /run/containerd/containerd.sock\n", "/run/cri-evictd/cri.sock", "/run/containerd/containerd.sock", "/run/cri-evictd/proxy.sock"},
		"the runtime's is our default":    {"runtimeEndpoint: /run/cri-evictd/cri.sock\n", "/run/cri-evictd/cri.sock", "/run/containerd/containerd.sock", "/run/cri-evictd/proxy.sock"},
		"both at a third place":           {"listen: /x.sock\nruntimeEndpoint: /x.sock\n", "/run/cri-evictd/cri.sock", "/x.sock", "/run/cri-evictd/proxy.sock"},
		"proxySocket at listen":           {"listen: /x.sock\nproxySocket: /x.sock\n", "/x.sock", "/run/containerd/containerd.sock", ""},
		"proxySocket at the runtime's":    {"proxySocket: /run/containerd/containerd.sock\n", "/run/cri-evictd/cri.sock", "/run/containerd/containerd.sock", ""},
		"adminSocket at listen":           {"adminSocket: /run/cri-evictd/cri.sock\n", "/run/cri-evictd/cri.sock", "/run/containerd/containerd.sock", "/run/cri-evictd/proxy.sock"},
	} {
		c, errs := fails(t, head+tt.text)
		if len(errs) != 1 || !strings.Contains(errs[0].Want, "must differ from") {
			t.Errorf("%s: %v, want one conflict", name, errs)
		}
		if c.Listen.Path != tt.listen || c.RuntimeEndpoint.Path != tt.runtime || c.ProxySocket.Path != tt.proxy {
			t.Errorf("%s: %q %q %q", name, c.Listen.Path, c.RuntimeEndpoint.Path, c.ProxySocket.Path)
		}
	}
}

// /var/run is a link to /run on most machines: the same socket under two names
// would make a proxy that forwards to itself.
func TestConflictBehindASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run", filepath.Join(dir, "varrun")); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file(t, head+"listen: "+dir+"/varrun/c.sock\nruntimeEndpoint: "+dir+"/run/c.sock\n"))
	if err == nil || !strings.Contains(err.Error(), "listen: ") || !strings.Contains(err.Error(), "must differ from runtimeEndpoint") {
		t.Errorf("%v", err)
	}
	if c.Listen.Path != "/run/cri-evictd/cri.sock" {
		t.Errorf("listens at %s", c.Listen.Path)
	}
	if _, err := Load(file(t, head+"listen: "+dir+"/varrun/d.sock\nruntimeEndpoint: "+dir+"/run/c.sock\n")); err != nil {
		t.Errorf("two sockets in one directory: %v", err)
	}
}
