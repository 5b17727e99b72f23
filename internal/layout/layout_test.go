// Package layout holds the tests of the project's own structure.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cri-evictd/cri-evictd/"

// allowed lists, for each folder, the folders of this module it may import
// (design §4: arrows go downward only; proxy and eviction never import each
// other). A folder that is not listed here may not exist.
var allowed = map[string][]string{
	"cgroupfs":  {},
	"cri":       {},
	"holds":     {},
	"systemd":   {},
	"inventory": {"cgroupfs", "cri"},

	"kube":           {"inventory"},
	"kube/podsapi":   {"kube"},
	"kube/access":    {},
	"kube/apiwatch":  {"kube", "kube/access"},
	"kube/tell":      {"eviction", "inventory", "kube", "kube/access"},
	"kube/allocated": {"kube"},

	"proxy":    {"cri", "holds", "internal/unixsock"},
	"eviction": {"cgroupfs", "holds", "inventory"},
	"config":   {"cri", "eviction", "eviction/gc"},
	"admin":    {"cri", "eviction", "eviction/gc", "holds", "inventory"},

	"eviction/diskusage": {"cgroupfs", "inventory"},
	"eviction/gc":        {"cgroupfs", "cri", "eviction", "inventory"},

	"eviction/gc/criruntime": {"cri", "eviction/gc", "inventory"},

	"internal/unixsock":   {"cri"},
	"internal/fakecri":    {"cri"},
	"internal/rawh2":      {},
	"internal/fakenode":   {},
	"internal/layout":     {},
	"internal/configdoc":  {"config", "eviction"},
	"internal/metricsdoc": {"admin"},
	"internal/golden":     {},

	"internal/lab":          {},
	"internal/lab/workload": {},
	"internal/lab/labtest":  {"internal/lab"},
	"internal/lab/demo":     {"admin", "cgroupfs", "cri", "eviction", "internal/lab"},
	"internal/lab/reaction": {"admin", "cgroupfs", "cri", "eviction", "internal/lab"},

	"cmd/cri-evictd":  {"admin", "cgroupfs", "config", "cri", "eviction", "eviction/diskusage", "eviction/gc", "eviction/gc/criruntime", "holds", "internal/unixsock", "inventory", "kube", "kube/allocated", "kube/apiwatch", "kube/podsapi", "kube/tell", "proxy", "systemd"},
	"test/cluster":    {},
	"test/e2e":        {},
	"test/kubelet":    {},
	"test/tell":       {},
	"test/handover":   {},
	"test/units":      {},
	"test/soak":       {"admin", "cri", "internal/lab"},
	"test/benchproxy": {"cri", "holds", "proxy"},

	"test/conformance":        {"internal/lab", "proxy", "test/conformance/images"},
	"test/conformance/images": {},
	"test/conformance/guest":  {},

	"test/vm":          {"internal/lab", "test/vm/cutdisk", "test/vm/protocol", "test/vm/survivor/told"},
	"test/vm/agent":    {"test/vm/protocol"},
	"test/vm/protocol": {},
	"test/vm/cutdisk":  {},

	"test/vm/survivor":      {"admin", "cgroupfs", "cri", "internal/fakecri", "internal/lab", "test/vm/survivor/told"},
	"test/vm/survivor/told": {"holds"},
}

// forbidden are imports of others that a folder may not have.
var forbidden = map[string][]string{
	"cgroupfs":  {"google.golang.org/grpc", "github.com/sirupsen/logrus", "os/exec"},
	"holds":     {"google.golang.org/grpc", "os/exec"},
	"eviction":  {"google.golang.org/grpc", "k8s.io/cri-api", "os/exec"},
	"proxy":     {"os/exec"},
	"inventory": {"os/exec"},
	"cri":       {"os/exec"},
	"admin":     {"os/exec"},
	"config":    {"os/exec"},

	"eviction/diskusage": {"google.golang.org/grpc", "os/exec"},
	"eviction/gc":        {"google.golang.org/grpc", "k8s.io/cri-api", "os/exec"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < len(allowed)/2 {
		t.Fatalf("go list found %d packages only", len(all))
	}
	return all
}

func TestImportDirections(t *testing.T) {
	for _, p := range packages(t) {
		folder := strings.TrimPrefix(p.ImportPath, module)
		may, known := allowed[folder]
		if !known {
			t.Errorf("folder %s is not in the list: decide what it may import", folder)
			continue
		}
		for _, imp := range p.Imports {
			if ours, ok := strings.CutPrefix(imp, module); ok && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s, which it may not", folder, ours)
			}
			for _, f := range forbidden[folder] {
				if imp == f || strings.HasPrefix(imp, f+"/") {
					t.Errorf("%s imports %s, which it may not", folder, imp)
				}
			}
		}
	}
}
