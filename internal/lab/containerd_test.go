package lab

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// labDeadline bounds what a test waits for; machines that build beside us are slow.
const labDeadline = 60 * time.Second

// forEachVersion runs a test on a fresh containerd of every version. After it,
// nothing may be left, whatever the test did to the containerd.
func forEachVersion(t *testing.T, test func(t *testing.T, c *Containerd)) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs containerd and containers")
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
			c, err := StartContainerd(ctx, ContainerdOptions{Tools: tools, Version: v, Dir: dir, Log: os.Stderr})
			cancel() // bounds the start only: every test below proves it
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				start := time.Now()
				if err := c.Cleanup(); err != nil {
					t.Errorf("Cleanup: %v", err)
				}
				t.Logf("cleanup took %.2f s", time.Since(start).Seconds())
				if left := c.Leftovers(); len(left) > 0 {
					t.Errorf("left after Cleanup:\n%s", strings.Join(left, "\n"))
				}
				remove()
				if left := Leftovers(dir); len(left) > 0 {
					t.Errorf("left after remove:\n%s", strings.Join(left, "\n"))
				}
			}()
			test(t, c)
		})
	}
}

// testPods are one pod of each QoS class, under a cgroup root of this test so
// that others who run labs on this machine do not share levels with us.
func testPods(cgroupRoot string) []PodSpec {
	var pods []PodSpec
	for _, qos := range []string{"Guaranteed", "Burstable", "BestEffort"} {
		uid := NewUID()
		pods = append(pods, PodSpec{
			Namespace: "lab", Name: strings.ToLower(qos), UID: uid,
			CgroupParent: cgroupRoot + QoSParent(qos, uid),
			Containers: []ContainerSpec{{
				Name: "main", Args: []string{"beat"},
				OOMScoreAdj: OOMScoreAdj(qos, 64<<20, 16<<30),
			}},
		})
	}
	return pods
}

func runtimeClient(t *testing.T, c *Containerd) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := c.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test is over
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// runAll starts the pods and returns their container IDs.
func runAll(t *testing.T, rt runtimeapi.RuntimeServiceClient, pods []PodSpec) []string {
	t.Helper()
	var ids []string
	for _, pod := range pods {
		start := time.Now()
		r, err := RunPod(t.Context(), rt, pod)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s runs after %d ms", pod.Name, time.Since(start).Milliseconds())
		ids = append(ids, r.ContainerIDs...)
	}
	return ids
}

func wantRunning(t *testing.T, rt runtimeapi.RuntimeServiceClient, ids []string) {
	t.Helper()
	list, err := rt.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]runtimeapi.ContainerState{}
	for _, c := range list.Containers {
		states[c.Id] = c.State
	}
	for _, id := range ids {
		if got, ok := states[id]; !ok || got != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container %s: listed %t, state %v; want it RUNNING", id, ok, got)
		}
	}
	sandboxes, err := rt.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sandboxes.Items {
		if s.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			t.Errorf("sandbox of %s: state %v; want READY", s.Metadata.Name, s.State)
		}
	}
}

// wantNothing looks for leftovers in its own, dumb way: it must not share a
// mistake with the code under test.
func wantNothing(t *testing.T, dir, cgroupRoot string, pods []PodSpec, containerIDs, shimSockets []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Errorf("mounts of %s are left:\n%s", dir, mounts)
	}
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range cmdlines {
		if b, err := os.ReadFile(filepath.Dir(p) + "/status"); err == nil && strings.Contains(string(b), "State:\tZ") {
			continue // ended, init has not reaped it yet
		}
		if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), dir) {
			t.Errorf("%s is left: %q", p, b)
		}
		if b, err := os.ReadFile(filepath.Dir(p) + "/cgroup"); err == nil && strings.Contains(string(b), cgroupRoot) {
			t.Errorf("%s is left: %q", p, b)
		}
	}
	names := []string{strings.TrimPrefix(cgroupRoot, "/")}
	for _, pod := range pods {
		names = append(names, "pod"+pod.UID)
	}
	names = append(names, containerIDs...)
	err = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			for _, name := range names {
				if d.Name() == name {
					t.Errorf("cgroup %s is left", p)
				}
			}
		}
		return nil // others make and remove cgroups meanwhile
	})
	if err != nil {
		t.Fatal(err)
	}
	// Shims of 1.6 have their sockets in a shared place; nobody may listen or
	// have listened on those of ours.
	for _, p := range shimSockets {
		if _, err := os.Lstat(p); !os.IsNotExist(err) {
			t.Errorf("shim socket %s is left: %v", p, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "ctd")); !os.IsNotExist(err) {
		t.Errorf("%s/ctd is left: %v", dir, err)
	}
}

func TestContainerdSurvivesKill(t *testing.T) {
	forEachVersion(t, func(t *testing.T, c *Containerd) {
		dir := filepath.Dir(filepath.Dir(c.Socket))
		root := "/" + filepath.Base(dir)
		rt := runtimeClient(t, c)
		pods := testPods(root)
		ids := runAll(t, rt, pods)
		wantRunning(t, rt, ids)
		out, err := exec.CommandContext(t.Context(), c.opts.Tools.Crictl,
			"-r", "unix://"+c.Socket, "-i", "unix://"+c.Socket, "pods", "-q").Output()
		if n := len(strings.Fields(string(out))); err != nil || n != len(pods) {
			t.Errorf("crictl pods -q: %d ids, error %v; want %d\n%s", n, err, len(pods), out)
		}
		// Before Cleanup all of it must be reported, or an empty list says nothing.
		report := strings.Join(Leftovers(dir), "\n")
		for _, want := range []string{"containerd-shim-runc-v2", "/workload beat", "mount ", "cgroup ", "folder "} {
			if !strings.Contains(report, want) {
				t.Errorf("Leftovers of a running lab has no %q:\n%s", want, report)
			}
		}

		shimSockets := shimSocketPaths(t, c)
		old := c.Pid()
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		if pid := c.Pid(); pid != 0 {
			t.Errorf("Pid after Kill = %d; want 0", pid)
		}
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pid := c.Pid(); pid == 0 || pid == old {
			t.Errorf("Pid after Restart = %d, before Kill %d; want another one", pid, old)
		}
		wantRunning(t, rt, ids)

		if err := c.Cleanup(); err != nil {
			t.Fatal(err)
		}
		wantNothing(t, dir, root, pods, ids, shimSockets)
	})
}

// shimSocketPaths reads from the bundles where the shims of c listen.
func shimSocketPaths(t *testing.T, c *Containerd) []string {
	t.Helper()
	bundles, err := filepath.Glob(filepath.Join(c.layout.state(), "io.containerd.runtime.v2.task/k8s.io/*/address"))
	if err != nil {
		t.Fatal(err)
	}
	boot, err := filepath.Glob(filepath.Join(c.layout.state(), "io.containerd.runtime.v2.task/k8s.io/*/bootstrap.json"))
	if err != nil {
		t.Fatal(err)
	}
	socket := regexp.MustCompile(`/[^"]*/s/[0-9a-f]{64}`)
	var paths []string
	for _, p := range append(bundles, boot...) {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, socket.FindAllString(string(b), -1)...)
	}
	if len(paths) == 0 {
		t.Fatal("no bundle names a shim socket: has its place changed?")
	}
	for _, p := range paths {
		if _, err := os.Lstat(p); err != nil {
			t.Fatalf("shim socket: %v", err)
		}
	}
	return paths
}
