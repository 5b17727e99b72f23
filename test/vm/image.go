package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

//go:embed guest
var guestFiles embed.FS

// nodePackages are installed in the machine. Everything else a test needs comes
// with the test, or from the lab's cache.
var nodePackages = []string{
	"systemd", "systemd-sysv", "dbus", "udev", "kmod", "util-linux", "mount", "e2fsprogs", "procps", "iproute2", "make", "containerd", "runc",
}

const (
	// imageFormat is raised when an image made by older code cannot be used.
	imageFormat = 1
	diskSize    = "12G" // of the root disk; the file is sparse
)

// image are the files a machine boots from. They are made once and never written
// to again.
type image struct{ kernel, initrd, root string }

// ensureImage makes the image of the host's Debian release, or takes it from the
// lab's cache. It is renewed when the list of packages or what is done with them
// changes, not when Debian has a newer package: delete the folder for that.
func ensureImage(ctx context.Context, log io.Writer) (image, error) {
	suite, err := codename()
	if err != nil {
		return image{}, err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, imageFormat, suite, diskSize, nodePackages, kernelPackages, bootModules, keptModules)
	for _, name := range []string{"init.sh", "agent.service", "machine.target"} {
		b, err := guestFiles.ReadFile("guest/" + name)
		if err != nil {
			return image{}, err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(b), b)
	}
	unit := "vm-" + suite + "-" + hex.EncodeToString(sum.Sum(nil))[:12]
	dir, err := lab.Cached(ctx, log, unit, []string{"vmlinux", "initrd.img", "root.img"}, func(ctx context.Context, dir string) error {
		return buildImage(ctx, log, dir, suite)
	})
	if err != nil {
		return image{}, err
	}
	return image{kernel: filepath.Join(dir, "vmlinux"), initrd: filepath.Join(dir, "initrd.img"), root: filepath.Join(dir, "root.img")}, nil
}

func buildImage(ctx context.Context, log io.Writer, dir, suite string) error {
	if err := hostTools(ctx, log); err != nil {
		return err
	}
	source, err := aptSource(suite, suite)
	if err != nil {
		return err
	}
	root, packed := filepath.Join(dir, "rootfs"), filepath.Join(dir, "packages")
	fmt.Fprintf(log, "vm: unpacking a kernel of %s\n", suite)
	if err := debootstrap(ctx, packed, suite, source, false, kernelPackages); err != nil {
		return err
	}
	k, err := findKernel(packed)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "vm: installing a root file system of %s\n", suite)
	if err := debootstrap(ctx, root, suite, source, true, nodePackages); err != nil {
		return err
	}
	fmt.Fprintf(log, "vm: kernel %s, making its disk\n", k.version)
	for _, step := range []func() error{
		func() error { return installModules(ctx, k, root) },
		func() error { return configure(root) },
		func() error { return writeKernel(ctx, k, filepath.Join(dir, "vmlinux")) },
		func() error { return writeInitrd(ctx, k, root, filepath.Join(dir, "initrd.img")) },
		func() error { return makeDisk(ctx, root, filepath.Join(dir, "root.img"), diskSize) },
		func() error { return os.RemoveAll(root) },
		func() error { return os.RemoveAll(packed) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// keptModules are the parts of the kernel's modules a machine without graphics,
// sound and real hardware has a use for.
var keptModules = []string{
	"arch", "crypto", "lib", "fs", "net", "drivers/block", "drivers/virtio", "drivers/char", "drivers/net/veth.ko", "drivers/net/dummy.ko", "drivers/md",
}

// bootModules stand between the kernel and its root disk; the last gives it
// randomness early.
var bootModules = []string{"virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "virtio_rng"}

func installModules(ctx context.Context, k kernel, root string) error {
	to := filepath.Join(root, "lib/modules", k.version)
	for _, part := range keptModules {
		from := filepath.Join(k.modules, "kernel", part)
		if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
			continue // built in, packed (.ko.xz), or this kernel has none
		}
		parent := filepath.Dir(filepath.Join(to, "kernel", part))
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err
		}
		if err := quietly(ctx, nil, "cp", "-a", from, parent); err != nil {
			return err
		}
	}
	for _, list := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := quietly(ctx, nil, "cp", "-a", filepath.Join(k.modules, list), to); err != nil {
			return err
		}
	}
	// udev would load them for the emulated processor and fail.
	if err := os.RemoveAll(filepath.Join(to, "kernel/arch/x86/kvm")); err != nil {
		return err
	}
	return quietly(ctx, nil, "chroot", root, "depmod", "-a", k.version)
}

// configure makes a root file system into the test machine's.
func configure(root string) error {
	const system = "etc/systemd/system/"
	files := map[string]string{
		"etc/cri-evictd-vm": "the test machine of cri-evictd\n",
		"etc/hostname":      "evictd-vm\n",
		"etc/hosts":         "127.0.0.1 localhost evictd-vm\n::1 localhost\n",
		"etc/resolv.conf":   "",
		"etc/fstab":         "",
		// Fixed, so that no boot is a first boot.
		"etc/machine-id": "c1e41c7dc1e41c7dc1e41c7dc1e41c7d\n",
		"etc/systemd/journald.conf.d/evictd.conf":      "[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\nRuntimeMaxUse=32M\n",
		system + "systemd-timesyncd.service.d/no.conf": "[Unit]\nConditionPathExists=/nonexistent\n",
	}
	for unit, name := range map[string]string{"agent.service": "evictd-agent.service", "machine.target": "evictd-vm.target"} {
		b, err := guestFiles.ReadFile("guest/" + unit)
		if err != nil {
			return err
		}
		files[system+name] = string(b)
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.RemoveAll(path); err != nil { // a link to somewhere else, maybe
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(root, system, "timers.target.wants")); err != nil {
		return err
	}
	return os.Symlink("evictd-vm.target", filepath.Join(root, system, "default.target"))
}

func writeKernel(ctx context.Context, k kernel, path string) error {
	b, err := k.uncompress(ctx)
	if err != nil {
		return err
	}
	// Executable, as the cache's sign of a whole file.
	return os.WriteFile(path, b, 0o755)
}

// writeInitrd makes the initramfs, without the agent; see initrdWith.
func writeInitrd(ctx context.Context, k kernel, root, path string) error {
	modules := filepath.Join(root, "lib/modules", k.version)
	text, err := os.ReadFile(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return err
	}
	deps, err := parseModuleDeps(string(text))
	if err != nil {
		return err
	}
	init, err := guestFiles.ReadFile("guest/init.sh")
	if err != nil {
		return err
	}
	busybox, err := os.ReadFile(k.busybox)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	c := &cpio{w: &b}
	for _, dir := range []string{"bin", "dev", "proc", "sys", "modules", "newroot"} {
		c.dir(dir)
	}
	c.char("dev/console", 5, 1)
	c.program("bin/busybox", busybox)
	for _, applet := range []string{"sh", "mount", "umount", "grep", "insmod", "usleep", "mkdir", "cp", "poweroff", "switch_root"} {
		c.link("bin/"+applet, "busybox")
	}
	c.program("init", init)
	for i, file := range deps.order(bootModules...) {
		body, err := readModule(ctx, k, filepath.Join(modules, file))
		if err != nil {
			return err
		}
		// insmod takes them in the order of their names.
		c.program(fmt.Sprintf("modules/%02d-%s.ko", i, moduleName(file)), body)
	}
	if err := c.close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o755)
}

func readModule(ctx context.Context, k kernel, path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	out, err := exec.CommandContext(ctx, k.busybox, "unxz", "-c", path).Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", path, err)
	}
	return out, nil
}

// initrdWith returns the initramfs with the agent added. The agent is no part of
// the image: it changes more often.
func (i image) initrdWith(agent string) ([]byte, error) {
	base, err := os.ReadFile(i.initrd)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(agent)
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(base)
	c := &cpio{w: b}
	c.program("agent", program)
	if err := c.close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// asDisk returns the share with a disk image of what is in its folder now.
func (s share) asDisk(ctx context.Context, path string) (share, error) {
	s.disk = path
	return s, makeDisk(ctx, s.host, path, "4G") // sparse
}

// makeDisk makes the ext4 image straight from the folder: no loop device and no
// mount. Nothing is ever recovered from it, so it has no journal.
func makeDisk(ctx context.Context, root, path, size string) error {
	err := quietly(ctx, nil, "mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0", "-L", "root",
		"-E", "root_owner=0:0,lazy_itable_init=1", "-d", root, path, size)
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o755) // see writeKernel
}
