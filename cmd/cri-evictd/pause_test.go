package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func TestPauseCommand(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.serve("")
	eventually(t, "status is good", n.healthy)
	sock := []string{"--admin-socket", n.path("admin.sock")}
	begun := time.Now()
	code, out, errOut := command(t, append([]string{"pause", "--for", "30m", "-o", "json"}, sock...)...)
	var r admin.PauseResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK {
		t.Fatalf("exit %d: %v\n%s%s", code, err, out, errOut)
	}
	if ahead := r.PausedUntil.Sub(begun); ahead < 30*time.Minute || ahead > 31*time.Minute {
		t.Errorf("until %s", r.PausedUntil)
	}
	code, s := n.status()
	if code != exitOK || s.Engine.Mode != "paused" || !s.Engine.PausedUntil.Equal(r.PausedUntil) {
		t.Errorf("exit %d, %+v", code, s.Engine)
	}
	if _, text, _ := command(t, append([]string{"status"}, sock...)...); !strings.Contains(text, "mode paused") ||
		!strings.Contains(text, "paused:") || !strings.Contains(text, "nothing is evicted until "+r.PausedUntil.Format(time.RFC3339)) {
		t.Errorf("%s", text)
	}
	code, out, _ = command(t, append([]string{"pause", "--for", "0"}, sock...)...)
	if code != exitOK || out != "not paused: pods are evicted when the node runs short\n" {
		t.Errorf("exit %d: %s", code, out)
	}
	if _, s := n.status(); s.Engine.Mode != "enforce" || !s.Engine.PausedUntil.IsZero() {
		t.Errorf("%+v", s.Engine)
	}
	if _, out, _ = command(t, append([]string{"pause", "--for", "90s"}, sock...)...); !strings.HasPrefix(out, "paused until ") || !strings.HasSuffix(out, "Z: nothing is evicted\n") {
		t.Errorf("%s", out)
	}
}

func TestPauseUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"--for", "-1s"}, {"--for", "25h"}, {"--for", "soon"}, {"--for", "1m", "x"}, {"--for", "1m", "-o", "yaml"}} {
		code, _, errOut := command(t, append([]string{"pause"}, args...)...)
		if code != exitUsage || !strings.Contains(errOut, "See cri-evictd --help") {
			t.Errorf("%v: exit %d: %s", args, code, errOut)
		}
	}
	if code, _, errOut := command(t, "pause", "--for", "1m", "--admin-socket", "/nowhere/x.sock"); code != exitProblem || !strings.Contains(errOut, "the daemon is not running") {
		t.Errorf("exit %d: %s", code, errOut)
	}
}
