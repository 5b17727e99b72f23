package cgroupfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// WalkPods calls visit for each pod's cgroup there is, found by reading the
// directories of the kubepods trees only: `kubepods` and `kubepods.slice` at
// the hierarchy's root or below one level of cgroup root. On v1 it is the
// memory hierarchy. A tree that is not there is no error. What cannot be read
// is a *BrokenError, returned after everything else was visited. An error of
// visit ends the walk and is returned as it is.
func (f *FS) WalkPods(visit func(PodPath) error) error {
	roots, err := f.kubepodsTrees()
	if err != nil {
		return err
	}
	var failed []error
	for _, tree := range roots {
		names, err := f.dirs(tree)
		if err != nil {
			failed = append(failed, err)
		}
		for _, name := range names {
			p := path.Join(tree, name)
			if err := visitPod(p, visit); err != nil {
				return err
			}
			if !isLevel(tree, name) {
				continue
			}
			pods, err := f.dirs(p)
			if err != nil {
				failed = append(failed, err)
			}
			for _, pod := range pods {
				if err := visitPod(path.Join(p, pod), visit); err != nil {
					return err
				}
			}
		}
	}
	return errors.Join(failed...)
}

func visitPod(p string, visit func(PodPath) error) error {
	pp, ok := ParsePodPath(p)
	if !ok {
		return nil
	}
	return visit(pp)
}

// isLevel tells whether name is a QoS level of the kubepods tree.
func isLevel(tree, name string) bool {
	chain, isSlice := strings.CutSuffix(path.Base(tree), sliceSuffix)
	for _, q := range []QoS{Burstable, BestEffort} {
		if isSlice && name == chain+"-"+q.level()+sliceSuffix || !isSlice && name == q.level() {
			return true
		}
	}
	return false
}

// kubepodsTrees looks for the trees by name, so that a system.slice with
// hundreds of units costs one look-up each and not a listing.
func (f *FS) kubepodsTrees() ([]string, error) {
	top, err := f.dirs("/")
	if err != nil {
		return nil, err
	}
	var trees []string
	for _, name := range top {
		if name == kubepods || name == kubepods+sliceSuffix {
			trees = append(trees, "/"+name)
			continue
		}
		below := []string{kubepods, kubepods + sliceSuffix}
		if chain, isSlice := strings.CutSuffix(name, sliceSuffix); isSlice {
			below = append(below, chain+"-"+kubepods+sliceSuffix)
		}
		for _, b := range below {
			p := path.Join("/", name, b)
			if isDir(filepath.Join(f.memory, p)) {
				trees = append(trees, p)
			}
		}
	}
	return trees, nil
}

// dirs names the child cgroups, sorted. A cgroup that went away meanwhile has
// none.
func (f *FS) dirs(p string) ([]string, error) {
	dir := filepath.Join(f.memory, p)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if isGone(err) && p != "/" {
			return nil, nil
		}
		return nil, broken(dir, "", nil, reason(err))
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// reason takes the path out of an error that will name it anyway.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
