package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// hangup sends the signal to this process and waits until the daemon has said
// something new about it.
func (d *daemon) hangup(text string) {
	d.n.t.Helper()
	before := strings.Count(d.log.String(), text)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		d.n.t.Fatal(err)
	}
	eventually(d.n.t, text, func() bool { return strings.Count(d.log.String(), text) > before })
}

const (
	reloaded    = "the configuration was reloaded"
	notReloaded = "the configuration was not reloaded"
)

func (n *node) status() (code int, s admin.Status) {
	n.t.Helper()
	code, out, errOut := command(n.t, "status", "-o", "json", "--admin-socket", n.path("admin.sock"))
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		n.t.Fatalf("%v\n%s%s", err, out, errOut)
	}
	return code, s
}

func TestReloadOnHangup(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	d := n.serve("evictionHard: {memory.available: 400Mi}\n")
	eventually(t, "status is good", n.healthy)
	_, first := n.status()
	if first.Engine.Memory.Threshold != 400<<20 {
		t.Fatalf("threshold %d", first.Engine.Memory.Threshold)
	}

	n.config("evictionHard: {memory.available: 600Mi}\nmode: observe\nimageGCLowThresholdPercent: 50\n")
	d.hangup(reloaded)
	eventually(t, "the new threshold is in force", func() bool {
		_, s := n.status()
		return s.Engine.Memory.Threshold == 600<<20 && s.Engine.Mode == "observe" && s.Config.Loaded.After(first.Config.Loaded)
	})

	// All or nothing: a good threshold beside a bad key, a key that needs a
	// restart, a file that is gone.
	for name, tt := range map[string]struct {
		extra string
		wants []string
	}{
		"invalid": {"evictionHard: {memory.available: 700Mi}\nmode: watch\nholdMaximum: x\n", []string{`mode: "watch": must be one of`, `holdMaximum: "x": must be a duration`}},
		"restart": {"evictionHard: {memory.available: 700Mi}\nmetricsBindAddress: 127.0.0.1:1\nproxySocket: /x/y.sock\n", []string{"metricsBindAddress: 127.0.0.1:1: a change needs a restart", "proxySocket: /x/y.sock: a change needs a restart; in force is"}},
	} {
		n.config(tt.extra)
		d.hangup(notReloaded)
		code, s := n.status()
		if code != exitProblem || s.Engine.Memory.Threshold != 600<<20 || s.Engine.Mode != "observe" || s.Config.Tried.IsZero() {
			t.Errorf("%s: exit %d, %+v", name, code, s.Config)
		}
		for _, want := range tt.wants {
			if !slices.ContainsFunc(d.log.lines("error"), func(l string) bool { return strings.HasPrefix(l, want) }) {
				t.Errorf("%s: not in the log: %s", name, want)
			}
			if !slices.ContainsFunc(s.Problems, func(p string) bool {
				return strings.HasPrefix(p, "the configuration was changed and not reloaded: "+want)
			}) {
				t.Errorf("%s: not in status: %s\n%q", name, want, s.Problems)
			}
		}
	}
	if err := os.Remove(n.path("config.yaml")); err != nil {
		t.Fatal(err)
	}
	d.hangup(notReloaded)
	n.mustFlow()

	n.config("evictionHard: {memory.available: 700Mi}\n")
	d.hangup(reloaded)
	eventually(t, "status is good again", n.healthy)
	if _, s := n.status(); s.Engine.Memory.Threshold != 700<<20 || s.Engine.Mode != "enforce" || len(s.Config.Failed) > 0 || !s.Config.Tried.IsZero() {
		t.Errorf("%+v %+v", s.Engine.Memory, s.Config)
	}
	if code := d.stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

// Each half alone takes its own signal; a daemon with a broken file ignores it.
func TestHangupOfEachHalf(t *testing.T) {
	for _, half := range []string{"proxy", "evict"} {
		t.Run(half, func(t *testing.T) {
			n := newNode(t, v2Tree, fakecri.Options{})
			d := n.start(half, append(n.roots(), "--config", n.config(""))...)
			d.waitFor(map[string]string{"proxy": "proxy listens", "evict": "watching memory.available"}[half])
			n.config("decorateStatus: false\nholdMaximum: 2h\n")
			d.hangup(reloaded)
			n.config("mode: watch\n")
			d.hangup(notReloaded)
			if code := d.stop(); code != exitOK {
				t.Errorf("exit %d", code)
			}
		})
	}
	t.Run("broken", func(t *testing.T) {
		n := newNode(t, v2Tree, fakecri.Options{})
		d := n.start("serve", append(n.roots(), "--config", n.config("mode: watch\n"))...)
		d.waitFor("proxy listens")
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		n.mustFlow()
		d.stop()
	})
}

// A half that refuses the new configuration keeps the others from it.
func TestReloadIsAllOrNothing(t *testing.T) {
	a, b := config.Default(), config.Default()
	b.HoldMaximum = time.Minute
	l := newLive(a)
	var first, second config.Config
	refuse := errors.New("no")
	if _, err := l.attach(func(c config.Config) error { first = c; return nil }); err != nil {
		t.Fatal(err)
	}
	detach, err := l.attach(func(c config.Config) error {
		if c.HoldMaximum == time.Minute {
			return refuse
		}
		second = c
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	load := func() (config.Config, error) { return b, nil }
	if err := l.reload(load); !errors.Is(err, refuse) {
		t.Errorf("%v", err)
	}
	for _, c := range []config.Config{first, second, l.config()} {
		if c.HoldMaximum != time.Hour {
			t.Errorf("half applied: %s", c.HoldMaximum)
		}
	}
	detach() // a half that ended has no say
	if err := l.reload(load); err != nil || first.HoldMaximum != time.Minute || l.config().HoldMaximum != time.Minute {
		t.Errorf("%v, %s", err, first.HoldMaximum)
	}
	// A half that starts now begins with what is in force.
	if _, err := l.attach(func(c config.Config) error { second = c; return nil }); err != nil || second.HoldMaximum != time.Minute {
		t.Errorf("%v, %s", err, second.HoldMaximum)
	}
	if _, err := l.attach(func(config.Config) error { return refuse }); !errors.Is(err, refuse) || len(l.takers) != 2 {
		t.Errorf("%v, %d takers", err, len(l.takers))
	}
}

// The real path: the evictor's file, the proxy's answer to kubelet; a pause, an
// observer and a holds file that is gone refuse nobody.
func TestAdmissionThroughTheDaemon(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	// A proxy of its own, so that the test is the only writer.
	d := n.start("proxy", append(n.roots(), "--config", n.config("protectedNamespaces: [kube-system, team]\n"))...)
	d.waitFor("proxy listens")
	w, err := holds.OpenWriter(n.path("run"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	renew := func() { // as the evictor does each second
		now := time.Now().UTC()
		if err := w.SetConditions(holds.Conditions{Memory: true, Since: now, Expires: now.Add(50 * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(uid, namespace, parent string) error {
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		req := sandboxRequest(uid, uid, parent, 0)
		req.Config.Metadata.Namespace = namespace
		_, err := n.client().Runtime().RunPodSandbox(ctx, req)
		return err
	}
	for _, tt := range []struct {
		uid, namespace, parent string
		refused                bool
	}{
		{"11111111-2222-3333-4444-00000000000a", "default", "kubepods-besteffort-pod11111111_2222_3333_4444_00000000000a.slice", true},
		{"11111111-2222-3333-4444-00000000000b", "default", "/kubepods/besteffort/pod11111111-2222-3333-4444-00000000000b", true},
		{"11111111-2222-3333-4444-00000000000c", "default", "kubepods-burstable-pod11111111_2222_3333_4444_00000000000c.slice", false},
		{"11111111-2222-3333-4444-00000000000d", "default", "/kubepods/pod11111111-2222-3333-4444-00000000000d", false},
		{"11111111-2222-3333-4444-00000000000e", "default", "/kubepods/besteffort", false},
		{"11111111-2222-3333-4444-00000000000f", "default", "", false},
		{"11111111-2222-3333-4444-000000000010", "team", "/kubepods/besteffort/pod11111111-2222-3333-4444-000000000010", false},
	} {
		renew()
		if err := run(tt.uid, tt.namespace, tt.parent); (status.Code(err) == codes.ResourceExhausted) != tt.refused || err != nil && !tt.refused {
			t.Errorf("%s %q: %v, want refused %v", tt.namespace, tt.parent, err, tt.refused)
		}
	}
	// A reload changes who is protected.
	n.config("protectedNamespaces: [default]\n")
	d.hangup(reloaded)
	renew()
	if err := run("11111111-2222-3333-4444-00000000000a", "default", "kubepods-besteffort-pod11111111_2222_3333_4444_00000000000a.slice"); err != nil {
		t.Errorf("protected now: %v", err)
	}
	if err := os.Remove(n.path("run/holds")); err != nil {
		t.Fatal(err)
	}
	if err := run("11111111-2222-3333-4444-00000000000b", "other", "/kubepods/besteffort/pod11111111-2222-3333-4444-00000000000b"); err != nil {
		t.Errorf("without a holds file: %v", err)
	}
}
