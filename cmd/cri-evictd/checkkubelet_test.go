package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// checkWith runs check with more flags.
func (n *node) checkWith(config string, flags ...string) (int, []finding) {
	n.t.Helper()
	args := append([]string{"check", "-o", "json", "--config", config}, flags...)
	code, out, errOut := command(n.t, append(args, n.roots()...)...)
	var f findings
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		n.t.Fatalf("%v\n%s\n%s", err, out, errOut)
	}
	return code, f.Findings
}

// disks gives the tree one file system of 100 GiB and a million inodes.
func (n *node) disks(available uint64) {
	n.t.Helper()
	line := strings.Join([]string{"/", "7", "107374182400", fmt.Sprint(available), "1000000", "900000"}, " ")
	n.edit("statfs", line+"\n")
}

// kubelet's configuration and ours side by side, and who would act first.
func TestCheckBesideKubelet(t *testing.T) {
	const what = "kubelet beside us"
	n := newNode(t, v2Tree, fakecri.Options{})
	n.disks(60 * gib)
	head := "kind: KubeletConfiguration\n"
	for _, c := range []struct {
		name, kubelet, ours, level, want string
	}{
		{"defaults", head, "", levelOK, "nodefs.available: kubelet hard 10% = 10Gi; we hard 12% = 12Gi: we act first"},
		{"inodes", head, "", levelOK, "imagefs.inodesFree: kubelet hard 5% = 50000 inodes; we hard 6% = 60000 inodes: we act first"},
		{"no PIDs", head, "", levelOK, "pid.available: kubelet hard off; we hard off: nobody acts"},
		{"kubelet first", head + "evictionHard: {nodefs.available: 15Gi}\n", "", levelWarning, "nodefs.available: kubelet hard 15Gi; we hard 12% = 12Gi: kubelet acts first"},
		{"kubelet off", head + "evictionHard: {memory.available: \"0%\", nodefs.available: \"0%\", nodefs.inodesFree: \"0%\", imagefs.available: \"0%\", imagefs.inodesFree: \"0%\"}\n",
			"", levelOK, "imagefs.available: kubelet hard off; we hard 17% = 17Gi: only we act"},
		{"soft fights", head + "evictionSoft: {nodefs.available: 20%}\nevictionSoftGracePeriod: {nodefs.available: 1m}\n", "", levelWarning, "nodefs.available: kubelet soft 20% for 1m0s is not below ours"},
		{"soft for the condition", head + "evictionSoft: {nodefs.available: 20%}\nevictionSoftGracePeriod: {nodefs.available: 87600h}\n", "", levelOK, "it reports the condition and evicts nobody"},
		{"merged defaults", head + "mergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 200Mi}\n", "", levelOK, "nodefs.inodesFree: kubelet hard 5% = 50000 inodes"},
		{"image GC off", head + "imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n", "", levelOK, "images: kubelet's GC is off"},
		{"no limits", head + "localStorageCapacityIsolation: false\n", "", levelWarning, "nobody enforces ephemeral-storage limits"},
		{"off in both", head + "evictionHard: {memory.available: 100Mi}\n", "evictionHard: {imagefs.available: \"0%\"}\n", levelWarning, "imagefs.available: off in both"},
	} {
		file := n.write("k.yaml", c.kubelet)
		code, fs := n.checkWith(n.config(c.ours), "--kubelet-config", file)
		if code != exitOK {
			t.Errorf("%s: exit %d", c.name, code)
		}
		expect(t, n, fs, c.level, what, c.want)
	}
	code, fs := n.checkWith(n.config(""), "--kubelet-config", n.write("bad.yaml", head+"evictionHard: {nodefs.available: \"0\"}\n"))
	if code != exitProblem {
		t.Errorf("exit %d", code)
	}
	expect(t, n, fs, levelError, what, `evictionHard["nodefs.available"]: "0": must be positive`)
}

// Drop-ins change the file, in the order of their names; other files in the
// directory do not.
func TestCheckOfKubeletsDropIns(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.disks(60 * gib)
	dir := n.path("drop")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"10-a.conf": "evictionHard: {nodefs.available: 30%, memory.available: 150Mi}\n", "20-b.conf": "evictionHard: {nodefs.available: 11%}\n", "30-c.yaml": "evictionHard: {nodefs.available: 40%}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("kind: KubeletConfiguration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := n.write("k.yaml", "kind: KubeletConfiguration\nevictionHard: {nodefs.available: 5%, imagefs.available: 7%}\n")
	_, fs := n.checkWith(n.config(""), "--kubelet-config", file, "--kubelet-config-dir", dir)
	expect(t, n, fs, levelOK, "kubelet beside us", "nodefs.available: kubelet hard 11% = 11Gi; we hard 12% = 12Gi: we act first")
	expect(t, n, fs, levelOK, "kubelet beside us", "imagefs.available: kubelet hard 7% = 7Gi")
	expect(t, n, fs, levelOK, "kubelet", "its hard memory.available is 150Mi")
	code, fs := n.checkWith(n.config(""), "--kubelet-config", file, "--kubelet-config-dir", n.path("none"))
	if code != exitProblem {
		t.Errorf("exit %d", code)
	}
	expect(t, n, fs, levelError, "kubelet beside us", "kubelet's drop-in directory")
}

// What is met already is said before it is served.
func TestCheckOfDiskThresholds(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.disks(10 * gib)
	_, fs := n.check(n.config("evictionHard: {nodefs.inodesFree: 2M}\n"))
	expect(t, n, fs, levelWarning, "nodefs.available", "threshold 12% = 12Gi is met now (10Gi available)")
	expect(t, n, fs, levelWarning, "nodefs.inodesFree", "threshold 2M is not below the capacity 1000000 inodes")
	expect(t, n, fs, levelOK, "imagefs.available", "threshold 17% = 17Gi of 100Gi")
}
