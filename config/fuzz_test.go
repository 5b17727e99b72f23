package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", head, "---\n" + head, head + "---\nmode: observe\n", "{", "[]", "null", "a: &a [*a]\n", "a: &a {b: *a}\n", "? [1]\n: 2\n", "1: 2\n", "<<: {mode: observe}\n",
		head + "evictionHard: {memory.available: 1e400}\n", head + "evictionHard: {memory.available: .inf}\n", head + "evictionHard: {memory.available: .nan}\n",
		head + "evictionHard: {memory.available: \"0%\"}\n", head + "runDir: /" + strings.Repeat("x", 120) + "\n", head + "listen: /run/containerd/containerd.sock\n",
		head + "proxySocket: /run/cri-evictd/cri.sock\n", head + "holdMaximum: 9999999999h\n", head + "killBudget: 1e1\n",
	} {
		f.Add([]byte(s))
	}
	for _, k := range keyCases {
		f.Add([]byte(head + k.key + ": " + k.good[0] + "\n"))
		for v := range k.bad {
			f.Add([]byte(head + k.key + ": " + v + "\n"))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		forwardable(t, c)
		if err != nil {
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Errorf("error is not Errors: %v", err)
			}
			for _, e := range errs {
				if e.Want == "" || strings.ContainsAny(e.Want, "\n") {
					t.Errorf("unclear: %q", e)
				}
			}
			return
		}
		valid(t, c)
	})
}

// valid fails when a configuration that was accepted is not within its bounds.
func valid(t *testing.T, c Config) {
	t.Helper()
	if c.Mode != Enforce && c.Mode != Observe {
		t.Errorf("mode %q", c.Mode)
	}
	for _, p := range []string{c.Listen.Path, c.RuntimeEndpoint.Path, c.AdminSocket.Path, c.ProxySocket.Path} {
		if !strings.HasPrefix(p, "/") || len(p) > 107 {
			t.Errorf("socket %q", p)
		}
	}
	for _, p := range []string{c.StateDir, c.RunDir, c.KubeletRootDir} {
		if !strings.HasPrefix(p, "/") {
			t.Errorf("path %q", p)
		}
	}
	if c.HoldMaximum < time.Second || c.HoldMaximum > 7*24*time.Hour || c.PressureTransition <= 0 || c.PressureTransition > 24*time.Hour {
		t.Errorf("holdMaximum %s, transition %s", c.HoldMaximum, c.PressureTransition)
	}
	for s, th := range c.EvictionHard {
		if th.Auto && s != eviction.MemoryAvailable || !th.Auto && !th.Off && th.Share == nil && th.Quantity <= 0 {
			t.Errorf("%s: %+v", s, th)
		}
	}
}
