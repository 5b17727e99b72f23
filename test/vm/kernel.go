package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// kernelPackages are only unpacked: the host's /boot and modules stay as they are.
var kernelPackages = []string{"linux-image-amd64", "busybox-static"}

// kernel is what was unpacked.
type kernel struct {
	version string
	image   string // bzImage
	modules string // lib/modules/<version>
	busybox string
}

// findKernel looks for the kernel below an unpacked root.
func findKernel(dir string) (kernel, error) {
	var k kernel
	for _, pattern := range []string{"lib/modules/*/kernel", "usr/lib/modules/*/kernel"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return k, err
		}
		if len(found) > 0 {
			k.modules = filepath.Dir(found[0])
		}
	}
	if k.modules == "" {
		return k, fmt.Errorf("no kernel modules in the packages %q", kernelPackages)
	}
	k.version = filepath.Base(k.modules)
	k.image = filepath.Join(dir, "boot", "vmlinuz-"+k.version)
	for _, p := range []string{"bin/busybox", "usr/bin/busybox"} {
		if info, err := os.Stat(filepath.Join(dir, p)); err == nil && info.Mode().IsRegular() {
			k.busybox = filepath.Join(dir, p)
		}
	}
	if k.busybox == "" {
		return k, fmt.Errorf("no busybox in the packages %q", kernelPackages)
	}
	return k, nil
}

// uncompress returns the kernel as the ELF file it was before it was packed:
// unpacking it inside an emulated machine costs seconds at every boot. A kernel
// that cannot be taken apart here is returned as it is; it boots, too.
func (k kernel) uncompress(ctx context.Context) ([]byte, error) {
	image, err := os.ReadFile(k.image)
	if err != nil {
		return nil, err
	}
	packed, err := payload(image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.image, err)
	}
	for _, tool := range unpackers(packed, k.busybox) {
		// The size of the content follows the packed bytes: every unpacker
		// complains about that, after its work.
		cmd := exec.CommandContext(ctx, tool[0], tool[1:]...)
		cmd.Stdin = bytes.NewReader(packed)
		out, err := cmd.Output()
		if _, elfErr := elf.NewFile(bytes.NewReader(out)); elfErr == nil {
			return out, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
	return image, nil
}

// payload returns the packed kernel within a bzImage (the kernel's
// Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length).
func payload(image []byte) ([]byte, error) {
	const sects, magic, version, offset, end = 0x1f1, 0x202, 0x206, 0x248, 0x250
	if len(image) < end || string(image[magic:magic+4]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	if v := binary.LittleEndian.Uint16(image[version:]); v < 0x208 {
		return nil, fmt.Errorf("boot protocol %#x is too old", v)
	}
	setup := uint64(image[sects])
	if setup == 0 {
		setup = 4 // as the document says
	}
	from := (setup+1)*512 + uint64(binary.LittleEndian.Uint32(image[offset:]))
	length := uint64(binary.LittleEndian.Uint32(image[offset+4:]))
	if from+length > uint64(len(image)) {
		return nil, fmt.Errorf("payload of %d bytes at %d in a file of %d", length, from, len(image))
	}
	return image[from : from+length], nil
}

// unpackers are the commands that may know the format.
func unpackers(packed []byte, busybox string) [][]string {
	switch {
	case bytes.HasPrefix(packed, []byte("\xfd7zXZ\x00")):
		return [][]string{{"xz", "-dcq"}, {busybox, "unxz", "-c"}}
	case bytes.HasPrefix(packed, []byte("\x1f\x8b")):
		return [][]string{{busybox, "gunzip", "-c"}}
	case bytes.HasPrefix(packed, []byte("\x28\xb5\x2f\xfd")):
		return [][]string{{"zstd", "-dcq"}}
	case bytes.HasPrefix(packed, []byte("\x02\x21\x4c\x18")):
		return [][]string{{"lz4", "-dcq"}}
	}
	return nil
}
