package kubeletdiff

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// kubeletFile is what ours reads in kubelet's own configuration file with these
// maps, which `check` shows beside ours.
func kubeletFile(t *testing.T, path string, w written) parsed {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"evictionHard": w.Hard, "evictionSoft": w.Soft, "evictionSoftGracePeriod": w.SoftGrace, "evictionMinimumReclaim": w.MinReclaim,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	out := parsed{thresholds: map[threshold]meaning{}, reclaims: map[string]meaning{}}
	s, err := config.ReadKubeletSettings(path, "")
	if err != nil {
		out.err = err
		return out
	}
	for sig, th := range s.Hard {
		out.thresholds[threshold{string(sig), false}] = meaningOfOurs(th)
	}
	for sig, th := range s.Soft {
		m := meaningOfOurs(th)
		m.grace = s.Grace[sig]
		out.thresholds[threshold{string(sig), true}] = m
	}
	for name := range w.MinReclaim {
		out.reclaims[name] = meaningOfOurs(s.MinReclaim[eviction.Signal(name)])
	}
	return out
}

// What ours reads in kubelet's configuration is what kubelet makes of it, an
// error where kubelet does not start; but for percentages that are written in
// ways that ours does not take and amounts that no capacity has.
func TestParseOfKubeletsOwn(t *testing.T) {
	n := number(t, "KUBELETDIFF_PARSE", 200_000) / 10
	seed := uint64(number(t, "KUBELETDIFF_SEED", 1))
	g := generator{rand.New(rand.NewPCG(seed, 0x6f776e))}
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	same, refused, differed := 0, 0, map[string]int{}
	for range n {
		w := g.written()
		k := theirs(w)
		diff, name := compare(k, kubeletFile(t, path, w)), named(w)
		switch {
		case diff != "" && !strings.Contains(name, "percent") && !strings.Contains(name, "amount"):
			t.Fatalf("seed %d: %s\n%s", seed, w, diff)
		case diff != "":
			differed[name]++
		case k.err != nil:
			refused++
		default:
			same++
		}
	}
	t.Logf("%d configurations of kubelet's: %d read with its meaning, %d that it does not start with", n, same, refused)
	for name, n := range differed {
		t.Logf("%6d differed: %s", n, name)
	}
	if n >= 1000 && (same < n/20 || refused < n/20) {
		t.Error("too few of one kind to mean anything")
	}
}
