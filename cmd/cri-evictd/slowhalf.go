package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// slowParts are what disk, inodes and PIDs are read and acted on with.
func (m *machine) slowParts(cfg config.Config, client *cri.Client) eviction.SlowParts {
	return eviction.SlowParts{
		Filesystems: m.filesystems(),
		ImagePaths: func(ctx context.Context) (string, string, error) {
			paths, err := client.ImageFilesystems(ctx)
			return paths.Images, paths.Containers, err
		},
		PIDs: m.fs.PIDs, CgroupPIDs: m.fs.CgroupPIDs, KubeletRoot: cfg.KubeletRootDir, PodLogs: cfg.PodLogsDir,
		Remove: client, EndedAt: client.ContainerEndedAt,
	}
}

// filesystems reads this machine's or, beside a checked-in tree, those that its
// file statfs has.
func (m *machine) filesystems() eviction.Filesystems {
	if proc := m.fs.Roots().Proc; proc != "/proc" {
		return treeFilesystems{file: filepath.Join(proc, "..", "statfs"), clock: time.Now}
	}
	return cgroupfs.NewStatfsReader(eviction.StatfsLimit, time.Now)
}

// treeFilesystems are the file systems of a checked-in tree: a line for each,
// "path device capacity available inodes inodesFree".
type treeFilesystems struct {
	file  string
	clock func() time.Time
}

// Read implements eviction.Filesystems. The longest path that leads to the one
// asked for counts; without any it is not there.
func (t treeFilesystems) Read(_ context.Context, path string) (cgroupfs.Filesystem, error) {
	f, err := os.Open(t.file)
	if errors.Is(err, fs.ErrNotExist) {
		return cgroupfs.Filesystem{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return cgroupfs.Filesystem{}, err
	}
	defer func() { _ = f.Close() }() // read only; nothing can be lost
	found, longest := cgroupfs.Filesystem{}, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var at string
		var x cgroupfs.Filesystem
		if _, err := fmt.Sscan(lines.Text(), &at, &x.Device, &x.Capacity, &x.Available, &x.Inodes, &x.InodesFree); err != nil {
			return x, fmt.Errorf("%s: %q: %w", t.file, lines.Text(), err)
		}
		if (path == at || strings.HasPrefix(path, strings.TrimSuffix(at, "/")+"/")) && len(at) > len(longest) {
			found, longest = x, at
		}
	}
	if longest == "" {
		return found, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	found.At, found.Free = t.clock(), found.Available
	return found, nil
}

// slow resolves the thresholds of disk, inodes and PIDs. Their amounts follow the
// capacities while we run.
func (r *resolved) slow(cfg config.Config) {
	for _, s := range eviction.Signals() {
		if s.Memory() || s == eviction.ContainerFsAvailable || s == eviction.ContainerFsInodesFree {
			continue
		}
		reclaim := cfg.EvictionMinimumReclaim[s]
		hard, has := cfg.EvictionHard[s]
		if has && !hard.Off {
			r.set.Slow = append(r.set.Slow, eviction.SlowThreshold{Signal: s, Value: hard, MinReclaim: reclaim, Hard: true})
		}
		soft, ok := cfg.EvictionSoft[s]
		if !ok || soft.Off {
			continue
		}
		r.set.Slow = append(r.set.Slow, eviction.SlowThreshold{Signal: s, Value: soft, MinReclaim: reclaim, Grace: cfg.EvictionSoftGrace[s]})
		if has && !hard.Off && notAbove(soft, hard) {
			r.warnings = append(r.warnings, fmt.Sprintf("evictionSoft[%q]: %s is not above the hard threshold %s: it never acts first", s, soft.Text, hard.Text))
		}
	}
}

// notAbove says whether a threshold is known not to lie above another: both are
// shares or both are amounts.
func notAbove(a, b eviction.Threshold) bool {
	if (a.Share == nil) != (b.Share == nil) {
		return false
	}
	if a.Share != nil {
		return a.Share.Cmp(b.Share) <= 0
	}
	return a.Quantity <= b.Quantity
}

// slowText lists thresholds in a line.
func slowText(list []eviction.SlowThreshold) string {
	var out []string
	for _, t := range list {
		text := string(t.Signal) + "<" + t.Value.Text
		if !t.Hard {
			text += " for " + t.Grace.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
