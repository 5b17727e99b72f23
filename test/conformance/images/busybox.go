package images

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadBusybox takes busybox and the libraries it needs from a folder with
// Debian's packages busybox and libc6.
func ReadBusybox(dir string) (Rootfs, error) {
	const program = "bin/busybox"
	loader, libraries, err := needs(filepath.Join(dir, program))
	if err != nil {
		return nil, err
	}
	root := Rootfs{}
	if root[program], err = os.ReadFile(filepath.Join(dir, program)); err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	for _, lib := range append(libraries, filepath.Base(loader)) {
		// lib/<architecture>/; the loader's own path is an absolute link into it.
		found, err := filepath.Glob(filepath.Join(dir, "lib/*", lib))
		if err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("images: busybox needs %s, of which %s has %q", lib, dir, found)
		}
		body, err := os.ReadFile(found[0])
		if err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
		name, err := filepath.Rel(dir, found[0])
		if err != nil {
			return nil, fmt.Errorf("images: %w", err)
		}
		if lib == filepath.Base(loader) {
			name = strings.TrimPrefix(loader, "/")
		}
		root[name] = body
	}
	return root, nil
}

// needs returns a program's dynamic loader and its libraries.
func needs(path string) (loader string, libraries []string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("images: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b, err := io.ReadAll(p.Open())
		if err != nil {
			return "", nil, fmt.Errorf("images: %s: %w", path, err)
		}
		loader = strings.TrimRight(string(b), "\x00")
	}
	if loader == "" {
		return "", nil, fmt.Errorf("images: %s: %w", path, errors.New("no dynamic loader: not Debian's package busybox"))
	}
	libraries, err = f.ImportedLibraries()
	if err != nil {
		return "", nil, fmt.Errorf("images: %s: %w", path, err)
	}
	return loader, libraries, nil
}

func sorted(r Rootfs) []string {
	names := make([]string, 0, len(r))
	for n := range r {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
