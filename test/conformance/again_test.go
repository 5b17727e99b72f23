package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// fakeCritest writes a report in which the one spec has the next state listed
// for the socket it is called with; the last one stays.
const fakeCritest = `#!/bin/sh
for arg; do
  case "$arg" in
  -runtime-endpoint=unix://*) states="$(dirname "$0")/${arg#-runtime-endpoint=unix://}" ;;
  -ginkgo.json-report=*) report="${arg#-ginkgo.json-report=}" ;;
  esac
done
state=$(head -n 1 "$states")
[ "$(wc -l <"$states")" -eq 1 ] || sed -i 1d "$states"
echo '[{"SpecReports":[{"LeafNodeType":"It","LeafNodeText":"spec","State":"'"$state"'","Failure":{"Message":"why"}}]}]' >"$report"
exit 1
`

func TestAgain(t *testing.T) {
	tests := []struct {
		name          string
		proxy, direct string // states, one after the other
		regression    bool
	}{
		{"passes through the proxy", "passed", "passed", false},
		{"passes there at last", "skipped skipped passed", "passed", false},
		{"flips directly", "skipped", "passed passed skipped", false},
		{"never through the proxy, always directly", "skipped", "passed", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, states := range map[string]string{"proxy": tt.proxy, "direct": tt.direct} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(states, " ", "\n")+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := &rig{
				programs: programs{Critest: filepath.Join(dir, "critest")}, out: dir, tmp: dir,
				ctd: &lab.Containerd{Socket: "direct"}, daemon: &daemon{Socket: "proxy"},
			}
			if err := os.WriteFile(r.programs.Critest, []byte(fakeCritest), 0o700); err != nil {
				t.Fatal(err)
			}
			word, err := r.again(t.Context(), "spec")
			if err != nil {
				t.Fatal(err)
			}
			if (word == "REGRESSION") != tt.regression {
				t.Errorf("%q", word)
			}
		})
	}
}
