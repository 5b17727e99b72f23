package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The worst case: pods run, one of them cannot be stopped politely, two share
// a cgroup, one was removed before (only the log still knows its cgroup), a
// shim and containerd are killed and stay dead.
func TestCleanupAfterKill(t *testing.T) {
	forEachVersion(t, func(t *testing.T, c *Containerd) {
		dir := filepath.Dir(filepath.Dir(c.Socket))
		root := "/" + filepath.Base(dir)
		rt := runtimeClient(t, c)
		pods := testPods(root)
		pods[0].Containers[0].Args = []string{"ignore-term"}
		pods[1].Containers[0].Args = []string{"fork", "--count", "3"}
		for _, name := range []string{"shared-a", "shared-b"} {
			pod := testPods("")[0]
			pod.Name, pod.CgroupParent = name, root+"/shared"
			pods = append(pods, pod)
		}
		ids := runAll(t, rt, pods)

		removed := testPods(root)[2]
		removed.Name = "removed"
		r, err := RunPod(t.Context(), rt, removed)
		if err != nil {
			t.Fatal(err)
		}
		if err := RemovePod(t.Context(), rt, r.SandboxID); err != nil {
			t.Fatal(err)
		}
		if left := strings.Join(c.Leftovers(), "\n"); !strings.Contains(left, "pod"+removed.UID) {
			t.Errorf("the cgroup of a removed pod is not known any more:\n%s", left)
		}
		shimSockets := shimSocketPaths(t, c)
		pods = append(pods, removed)

		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		killOneShim(t, dir)
		if err := c.Cleanup(); err != nil {
			t.Fatal(err)
		}
		wantNothing(t, dir, root, pods, append(ids, r.ContainerIDs...), shimSockets)
		if err := c.Cleanup(); err != nil {
			t.Errorf("second Cleanup: %v", err)
		}
	})
}

// killOneShim leaves a container without a shim.
func killOneShim(t *testing.T, dir string) {
	t.Helper()
	processes, err := newIdentity(dir).find()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(processes, func(p process) bool { return filepath.Base(p.args[0]) == "containerd-shim-runc-v2" })
	if i < 0 {
		t.Fatalf("no shim among %v", processes)
	}
	shim, err := os.FindProcess(processes[i].pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := shim.Kill(); err != nil {
		t.Fatal(err)
	}
}

func TestStartCancelled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs containerd")
	}
	for _, v := range Versions() {
		t.Run(string(v), func(t *testing.T) {
			tools, err := Ensure(t.Context(), os.Stderr, v)
			if err != nil {
				t.Fatal(err)
			}
			dir, remove, err := NewScratch()
			if err != nil {
				t.Fatal(err)
			}
			defer remove()
			ctx, cancel := context.WithTimeout(t.Context(), labDeadline)
			defer cancel()
			// Cancel when containerd has written its log: it runs and does not answer yet.
			watcher := make(chan struct{})
			go func() {
				defer close(watcher)
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					if info, err := os.Stat(layout{dir: filepath.Join(dir, "ctd")}.log()); err == nil && info.Size() > 0 {
						cancel()
					}
					<-tick.C
				}
			}()
			c, err := StartContainerd(ctx, ContainerdOptions{Tools: tools, Version: v, Dir: dir})
			<-watcher
			if !errors.Is(err, context.Canceled) {
				t.Errorf("StartContainerd: %v; want context.Canceled", err)
			}
			if c != nil {
				t.Errorf("StartContainerd returned a containerd with an error; cleanup: %v", c.Cleanup())
			}
			remove()
			if left := Leftovers(dir); len(left) > 0 {
				t.Errorf("left after a cancelled start:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}
