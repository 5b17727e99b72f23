package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// moduleDeps is modules.dep: for each module file, below the kernel's module
// folder, the files it needs.
type moduleDeps map[string][]string

// parseModuleDeps reads depmod's modules.dep: "a.ko: b.ko c.ko".
func parseModuleDeps(text string) (moduleDeps, error) {
	deps := moduleDeps{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		file, needs, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: line without a colon: %.80q", line)
		}
		deps[file] = strings.Fields(needs)
	}
	return deps, nil
}

// moduleName is a module file's name as insmod's messages and aliases have it.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// order returns the files to load, each once and after what it needs. A name that
// is not there is built into the kernel, or the kernel does without.
func (d moduleDeps) order(names ...string) []string {
	var out []string
	var add func(file string, above []string)
	add = func(file string, above []string) {
		if slices.Contains(out, file) || slices.Contains(above, file) {
			return
		}
		for _, need := range d[file] {
			add(need, append(slices.Clone(above), file))
		}
		out = append(out, file)
	}
	for _, name := range names {
		for file := range d {
			if moduleName(file) == moduleName(name) {
				add(file, nil)
			}
		}
	}
	return out
}
