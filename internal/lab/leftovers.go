package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
)

// Leftovers lists what there is of the lab in dir, one line each: processes
// that run from it, in its containers or with it in their arguments, mounts,
// and, while its containerd's folder exists, cgroups of its pods and shim
// sockets; last the folder itself. An empty list means that nothing is left.
// Use Containerd.Leftovers for the cgroups after the folder has gone.
func Leftovers(dir string) []string {
	abs, err := realPath(dir)
	if err != nil {
		return []string{err.Error()}
	}
	var t traces
	t.collect(layout{dir: filepath.Join(abs, "ctd")})
	return leftovers(abs, &t)
}

// leftovers reports what cannot be looked at, too: not knowing is no "clean".
func leftovers(dir string, t *traces) []string {
	var out []string
	processes, err := newIdentity(dir).present()
	if err != nil {
		out = append(out, err.Error())
	}
	for _, p := range processes {
		out = append(out, p.String())
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		out = append(out, err.Error())
	}
	for _, m := range mounts {
		out = append(out, "mount "+m.Mountpoint)
	}
	cgroups, err := t.cgroupDirs()
	if err != nil {
		out = append(out, err.Error())
	}
	for _, p := range cgroups {
		out = append(out, "cgroup "+p)
	}
	for _, p := range keys(t.sockets) {
		if _, err := os.Lstat(p); err == nil {
			out = append(out, "socket "+p)
		}
	}
	if _, err := os.Lstat(dir); err == nil {
		out = append(out, "folder "+dir)
	}
	return out
}

// present is find and also every other process with the folder in its
// arguments, such as a cri-evictd that was started on its sockets; not
// ourselves and what has started us, which may have been given the folder.
func (id identity) present() ([]process, error) {
	found, err := id.find()
	if err != nil {
		return nil, err
	}
	all, err := readProcesses()
	if err != nil {
		return nil, err
	}
	parent := map[int]int{}
	for _, p := range all {
		parent[p.pid] = p.ppid
	}
	callers := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !callers[pid]; pid = parent[pid] {
		callers[pid] = true
	}
	for _, p := range all {
		known := slices.ContainsFunc(found, func(f process) bool { return f.pid == p.pid })
		if !known && !callers[p.pid] && id.names(p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// realPath is dir without symbolic links, as the kernel reports paths. The
// last element, or more, may be gone.
func realPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	rest := ""
	for p := abs; ; p = filepath.Dir(p) {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			return filepath.Join(real, rest), nil
		}
		if p == "/" {
			return abs, nil
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}
