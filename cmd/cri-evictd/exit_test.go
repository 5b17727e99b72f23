package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// design §12: 0 ok, 1 a problem was found, 2 wrong usage.
func TestExitCodes(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("mode: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		err  string
	}{
		{"", 0, ""},
		{"--help", 0, ""},
		{"help status", 0, ""},
		{"version", 0, ""},
		{"version -o json", 0, ""},
		{"completion bash", 0, ""},

		{"status --admin-socket " + none, 1, "the daemon is not running: there is no socket " + none},
		{"explain --admin-socket " + none, 1, "the daemon is not running"},
		{"explain default/x --admin-socket " + none, 1, "the daemon is not running"},
		{"holds list --admin-socket " + none, 1, "the daemon is not running"},
		{"holds release default/x --admin-socket " + none, 1, "the daemon is not running"},
		{"holds release --all --admin-socket " + none, 1, "the daemon is not running"},

		{"nonsense", 2, `unknown command "nonsense"`},
		{"--nonsense", 2, "unknown flag: --nonsense"},
		{"status --nonsense", 2, "unknown flag"},
		{"status -o", 2, "flag needs an argument"},
		{"status -o yaml", 2, `-o "yaml": must be text or json`},
		{"version -o yaml", 2, `-o "yaml": must be text or json`},
		{"check -o yaml", 2, `-o "yaml": must be text or json`},
		{"explain -o yaml", 2, `-o "yaml"`},
		{"holds list -o yaml", 2, `-o "yaml"`},
		{"holds release x -o yaml", 2, `-o "yaml"`},
		{"status --admin-socket rel/path", 2, "must be absolute"},
		{"status extra", 2, "unknown command"},
		{"version extra", 2, "unknown command"},
		{"check extra", 2, "unknown command"},
		{"serve extra", 2, "unknown command"},
		{"proxy extra", 2, "unknown command"},
		{"evict extra", 2, "unknown command"},
		{"explain a b", 2, "accepts at most 1 arg"},
		{"holds", 2, "list or release"},
		{"holds nonsense", 2, "unknown command"},
		{"holds list extra", 2, "unknown command"},
		{"holds release", 2, "needs one POD, or --all"},
		{"holds release x --all", 2, "needs one POD, or --all"},
		{"holds release x y", 2, "accepts at most 1 arg"},
		{"serve --log-level loud", 2, `--log-level "loud"`},
		{"serve --log-format xml", 2, `--log-format "xml"`},
		{"evict --config " + bad, 2, `mode: "x": must be one of enforce, observe`},
		{"evict --config " + none, 1, "no such file"},
		{"completion", 2, "needs a shell"},
		{"completion klingon", 2, `unknown command "klingon"`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, out, errOut := command(t, strings.Fields(tt.args)...)
			if code != tt.code || !strings.Contains(errOut, tt.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, out, errOut)
			}
			if code == 0 && out == "" || code != 0 && errOut == "" {
				t.Errorf("exit %d and nothing said\nstdout: %s\nstderr: %s", code, out, errOut)
			}
			if code == exitUsage && strings.Contains(out, "Usage:") {
				t.Error("the usage text hides the error")
			}
		})
	}
}

func TestVersionJSON(t *testing.T) {
	code, out, _ := command(t, "version", "-o", "json")
	var v map[string]string
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 {
		t.Fatalf("%d %v: %s", code, err, out)
	}
	if len(v) != 4 || v["version"] == "" || v["go"] != runtime.Version() || v["os"] != runtime.GOOS || v["arch"] != runtime.GOARCH {
		t.Errorf("%v", v)
	}
	if _, text, _ := command(t, "version"); !strings.HasPrefix(text, "cri-evictd "+v["version"]+" (") {
		t.Errorf("%q", text)
	}
}

func TestExitCodesWithADaemon(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.serve("")
	sock := []string{"--admin-socket", n.path("admin.sock")}
	eventually(t, "status is good", n.healthy)
	for _, tt := range []struct {
		args      string
		code      int
		out, told string
	}{
		{"explain", 0, "no running pod", ""},
		{"explain -o json", 0, `"candidates": []`, ""},
		{"explain default/none", 1, "", `no pod "default/none" is known`},
		{"holds list", 0, "no holds", ""},
		{"holds list -o json", 0, `"holds": []`, ""},
		{"holds release --all", 0, "", ""},
		{"holds release default/none", 1, "", `pod "default/none" is not held`},
	} {
		code, out, errOut := command(t, append(strings.Fields(tt.args), sock...)...)
		if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errOut, tt.told) {
			t.Errorf("%s: exit %d, want %d\nstdout: %s\nstderr: %s", tt.args, code, tt.code, out, errOut)
		}
	}
}
