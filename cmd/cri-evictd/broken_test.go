package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// Whatever is broken at our side, kubelet's calls flow and the message says what
// it is (design §2.2).

func TestServeWithABrokenConfiguration(t *testing.T) {
	for _, command := range []string{"serve", "proxy"} {
		t.Run(command, func(t *testing.T) {
			n := newNode(t, v2Tree, fakecri.Options{})
			file := n.config("evictionHard: {memory.available: lots}\nmode: watch\nstateDirectory: /x\n")
			d := n.start(command, append(n.roots(), "--config", file)...)
			d.waitFor("proxy listens")
			n.mustFlow()
			n.hold(burstableUID, "hog", time.Now()) // of an evictor that was here before
			if err := n.runPod(burstableUID, "hog", 1); err != nil {
				t.Errorf("a hold is enforced with a broken configuration: %v", err)
			}
			if code := d.stop(); code != exitUsage {
				t.Errorf("exit %d, want %d", code, exitUsage)
			}
			want := []string{
				"configuration " + file + ":",
				`evictionHard["memory.available"]: "lots": not a quantity such as 500Mi nor a percentage such as 10%: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
				`mode: "watch": must be one of enforce, observe`,
				`stateDirectory: "/x": unknown key`,
				"the configuration is broken: calls are forwarded, nothing is evicted and no hold is enforced; correct it and restart",
			}
			if got := d.log.lines("error"); !slices.Equal(got, want) {
				t.Errorf("said\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if left := socketsIn(t, n.dir); !slices.Equal(left, []string{"rt/cri.sock"}) {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A conflict that has nothing to do with forwarding does not stop it.
func TestServeWithSocketsInConflict(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	d := n.start("serve", append(n.roots(), "--config", n.config("proxySocket: "+n.path("cri.sock")+"\n"))...)
	d.waitFor("proxy listens")
	n.mustFlow()
	if want := "proxySocket: unix://" + n.path("cri.sock") + ": must differ from listen"; !slices.Contains(d.log.lines("error"), want) {
		t.Errorf("%q not in %v", want, d.log.lines("error"))
	}
}

func TestEvictWithABrokenConfiguration(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	d := n.start("evict", append(n.roots(), "--config", n.config("mode: watch\n"))...)
	if code := d.wait(); code != exitUsage || !strings.Contains(d.log.String(), `mode: "watch": must be one of`) {
		t.Errorf("exit %d: %s", code, &d.log)
	}
}

func TestServeWithoutACgroupTree(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	d := n.start("serve", "--path.procfs", n.tree+"/proc", "--path.cgroupfs", n.path("none"), "--config", n.config(""))
	d.waitFor("proxy listens")
	n.mustFlow()
	d.waitFor(`"retryIn":2000000000`) // the second failure: it is tried again
	n.mustFlow()
	for _, line := range d.log.lines("error") {
		if !strings.HasPrefix(line, "the evictor is down: nothing is evicted; calls are forwarded: cgroup hierarchy: ") || !strings.Contains(line, n.path("none")) {
			t.Errorf("said %q", line)
		}
	}
	// It comes back by itself when the tree is there.
	if err := os.Rename(n.tree+"/cgroup", n.path("none")); err != nil {
		t.Fatal(err)
	}
	d.waitFor("watching memory.available")
	if code := d.stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func TestEvictWithoutACgroupTree(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	d := n.start("evict", "--path.procfs", n.tree+"/proc", "--path.cgroupfs", n.path("none"), "--config", n.config(""))
	if code := d.wait(); code != exitProblem || !strings.Contains(d.log.String(), "cri-evictd: cgroup hierarchy: ") {
		t.Errorf("exit %d: %s", code, &d.log)
	}
}

// Somebody serves our address: it is theirs.
func TestServeAtALiveSocket(t *testing.T) {
	for _, command := range []string{"serve", "proxy"} {
		t.Run(command, func(t *testing.T) {
			n := newNode(t, v2Tree, fakecri.Options{})
			file := n.config("")
			theirs, err := net.Listen("unix", n.path("cri.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = theirs.Close() }()
			before, err := os.Lstat(n.path("cri.sock"))
			if err != nil {
				t.Fatal(err)
			}
			d := n.start(command, append(n.roots(), "--config", file)...)
			if code := d.wait(); code != exitProblem {
				t.Errorf("exit %d", code)
			}
			want := "cri-evictd: listen: " + n.path("cri.sock") + " is in use: another process serves it\n"
			if !strings.HasSuffix(d.log.String(), want) {
				t.Errorf("said %s\nwant %s", &d.log, want)
			}
			after, err := os.Lstat(n.path("cri.sock"))
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("their socket was touched: %v", err)
			}
			go func() {
				if c, err := net.Dial("unix", n.path("cri.sock")); err == nil {
					_ = c.Close()
				}
			}()
			if err := theirs.(*net.UnixListener).SetDeadline(time.Now().Add(deadline)); err != nil {
				t.Fatal(err)
			}
			if c, err := theirs.Accept(); err != nil { // ours that looked whether it is live, or the one above
				t.Errorf("their socket does not serve: %v", err)
			} else {
				_ = c.Close()
			}
		})
	}
}

func TestServeAtAFileThatIsNoSocket(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	file := n.config("")
	n.write("cri.sock", "precious")
	d := n.start("serve", append(n.roots(), "--config", file)...)
	if code := d.wait(); code != exitProblem {
		t.Errorf("exit %d", code)
	}
	want := fmt.Sprintf("cri-evictd: listen: %s exists and is not a socket (-rw-------); it is left alone, choose another path or remove it\n", n.path("cri.sock"))
	if !strings.HasSuffix(d.log.String(), want) {
		t.Errorf("said %s\nwant %s", &d.log, want)
	}
	if b, err := os.ReadFile(n.path("cri.sock")); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
	if left := socketsIn(t, n.dir); !slices.Equal(left, []string{"rt/cri.sock"}) {
		t.Errorf("left behind: %v", left)
	}
}

// The admin socket is the evictor's affair: calls flow without it.
func TestServeWithTheAdminSocketTaken(t *testing.T) {
	// Nothing may depend on the collector closing what was forgotten.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	n := newNode(t, v2Tree, fakecri.Options{})
	theirs, err := net.Listen("unix", n.path("admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	d := n.serve("")
	n.mustFlow()
	d.waitFor("the evictor is down")
	if want := "the evictor is down: nothing is evicted; calls are forwarded: adminSocket: " + n.path("admin.sock") + " is in use: another process serves it"; d.log.lines("error")[0] != want {
		t.Errorf("said %q, want %q", d.log.lines("error"), want)
	}
	// Nothing of the failed start stays open: the next one is not in its own way.
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the admin service answers", func() bool {
		code, _, _ := command(t, "holds", "list", "--admin-socket", n.path("admin.sock"))
		return code == exitOK
	})
}

func TestServeWithATornHoldsFileAndACorruptLedger(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	for _, dir := range []string{"run", "state"} {
		if err := os.Mkdir(n.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	n.write("run/holds", strings.Repeat("torn", 5000))
	n.write("state/ledger.db", strings.Repeat("not a database", 2000))
	d := n.serve("")
	n.mustFlow()
	d.waitFor("watching memory.available")
	d.waitFor("the ledger was corrupt")
	said := strings.Join(d.log.lines("error"), "\n")
	for _, want := range []string{"part of the holds file could not be used: those pods are not held: ", "the ledger was corrupt; it was put aside and a new one begun: history and back-offs start anew, holds are not affected: "} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in\n%s", want, said)
		}
	}
	for _, pattern := range []string{"run/holds.broken-*", "state/ledger.db.corrupt-*"} {
		if found, err := filepath.Glob(n.path(pattern)); err != nil || len(found) != 1 {
			t.Errorf("%s: %v %v", pattern, found, err)
		}
	}
	eventually(t, "status is good", n.healthy)
}

// A state directory that cannot be made costs the history only.
func TestServeWithoutALedger(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.write("file", "")
	text, err := os.ReadFile(n.config(""))
	if err != nil {
		t.Fatal(err)
	}
	file := n.write("config.yaml", strings.ReplaceAll(string(text), n.path("state"), n.path("file/state")))
	d := n.start("serve", append(n.roots(), "--config", file)...)
	d.waitFor("no ledger: kills and holds go on, history and back-offs are not kept over a restart")
	d.waitFor("proxy listens")
	d.waitFor("watching memory.available")
	n.mustFlow()
}
