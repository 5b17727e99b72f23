package config

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// As kubelet's ParseThresholdConfig: every soft signal that is not off needs a
// grace period.
func TestSoftThresholdsNeedAGracePeriod(t *testing.T) {
	for name, tt := range map[string]struct {
		text     string
		errors   []string // fields
		warnings []string // fields
	}{
		"both":                  {text: "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 90s}\n"},
		"no grace at all":       {text: "evictionSoft: {memory.available: 1Gi}\n", errors: []string{`evictionSoftGracePeriod["memory.available"]`}},
		"grace of another":      {text: "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {pid.available: 90s}\n", errors: []string{`evictionSoftGracePeriod["memory.available"]`}, warnings: []string{`evictionSoftGracePeriod["pid.available"]`}},
		"two without":           {text: "evictionSoft: {memory.available: 1Gi, nodefs.available: 15%}\n", errors: []string{`evictionSoftGracePeriod["memory.available"]`, `evictionSoftGracePeriod["nodefs.available"]`}},
		"off needs none":        {text: "evictionSoft: {memory.available: \"0%\", nodefs.available: \"100%\"}\n"},
		"off and a grace":       {text: "evictionSoft: {memory.available: \"0%\"}\nevictionSoftGracePeriod: {memory.available: 90s}\n"},
		"grace alone":           {text: "evictionSoftGracePeriod: {memory.available: 90s}\n", warnings: []string{`evictionSoftGracePeriod["memory.available"]`}},
		"grace of zero":         {text: "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 0s}\n", warnings: []string{`evictionSoftGracePeriod["memory.available"]`}},
		"unknown signal":        {text: "evictionSoftGracePeriod: {memory.availabel: 90s}\n", errors: []string{`evictionSoftGracePeriod["memory.availabel"]`}},
		"wrong grace, once":     {text: "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: soon}\n", errors: []string{`evictionSoftGracePeriod["memory.available"]`}},
		"wrong threshold, once": {text: "evictionSoft: {memory.available: lots}\nevictionSoftGracePeriod: {memory.available: 90s}\n", errors: []string{`evictionSoft["memory.available"]`}},
	} {
		c, errs := fails(t, head+tt.text)
		if got := fieldsOf(errs); !slices.Equal(got, tt.errors) {
			t.Errorf("%s: errors %v, want %v", name, errs, tt.errors)
		}
		if got := fieldsOf(c.Warnings); !slices.Equal(got, tt.warnings) {
			t.Errorf("%s: warnings %v, want %v", name, c.Warnings, tt.warnings)
		}
		for s, th := range c.EvictionSoft {
			if _, has := c.EvictionSoftGrace[s]; !has && !th.Off {
				t.Errorf("%s: %s has no grace period", name, s)
			}
		}
	}
}

func fieldsOf(errs []FieldError) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Field)
	}
	return out
}

func TestSoftValues(t *testing.T) {
	c := good(t, `evictionSoft: {memory.available: 10%, allocatableMemory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m30s, allocatableMemory.available: 5s}
evictionMinimumReclaim: {memory.available: 200Mi, allocatableMemory.available: 1%}
evictionHard: {allocatableMemory.available: 300Mi}
evictionMaxPodGracePeriod: 90
killBudget: 7
hardMemoryGrace: 2s
metricsBindAddress: 0.0.0.0:9
`)
	const all, node = eviction.AllocatableMemoryAvailable, eviction.MemoryAvailable
	if th := c.EvictionSoft[node]; th.Resolve(1000) != 100 || c.EvictionSoftGrace[node] != 90*time.Second {
		t.Errorf("%s: %+v, %s", node, th, c.EvictionSoftGrace[node])
	}
	if c.EvictionSoft[all].Quantity != 1<<30 || c.EvictionSoftGrace[all] != 5*time.Second || c.EvictionHard[all].Quantity != 300<<20 {
		t.Errorf("%s: %+v %s %+v", all, c.EvictionSoft[all], c.EvictionSoftGrace[all], c.EvictionHard[all])
	}
	reclaim := c.EvictionMinimumReclaim[all]
	if reclaim.Resolve(5000) != 50 || c.EvictionMinimumReclaim[node].Quantity != 200<<20 {
		t.Errorf("minimum reclaim %+v", c.EvictionMinimumReclaim)
	}
	if c.MaxPodGrace != 90*time.Second || c.KillBudget != 7 || c.HardMemoryGrace != 2*time.Second || c.MetricsBindAddress != "0.0.0.0:9" {
		t.Errorf("%s %d %s %s", c.MaxPodGrace, c.KillBudget, c.HardMemoryGrace, c.MetricsBindAddress)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("warnings %v", c.Warnings)
	}
	if len(Default().EvictionSoft)+len(Default().EvictionSoftGrace) > 0 {
		t.Error("one configuration changed the defaults of the next")
	}
}

// Values for containerfs are overwritten, as by kubelet: each is a warning.
func TestContainerFsIsSynthesised(t *testing.T) {
	c := good(t, "evictionHard: {nodefs.available: 5%, containerfs.available: 1Gi}\nevictionSoft: {containerfs.inodesFree: 10%}\n"+
		"evictionSoftGracePeriod: {containerfs.inodesFree: 1s}\nevictionMinimumReclaim: {imagefs.available: 1Gi}\n")
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.Field)
	}
	want := `evictionHard["containerfs.available"] evictionSoft["containerfs.inodesFree"] evictionSoftGracePeriod["containerfs.inodesFree"]`
	if strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}

// A reload names every key that only a restart can change, and no other.
func TestNeedRestart(t *testing.T) {
	fixed := map[string]string{
		"listen": "/x.sock", "runtimeEndpoint": "/y.sock", "adminSocket": "/a.sock", "proxySocket": "/p.sock", "podLogsDir": "/l",
		"stateDir": "/s", "runDir": "/r", "kubeletRootDir": "/k", "podsAPISocket": "/pods.sock", "metricsBindAddress": "127.0.0.1:1",
		"kubeconfig": "/s", "nodeName": "n2", "reportMode": "evict",
	}
	before := good(t, "")
	for _, k := range keyCases {
		for _, v := range k.good {
			text := k.key + ": " + v + "\n"
			errs := before.NeedRestart(good(t, text))
			_, isFixed := fixed[k.key]
			same := dump(good(t, text)) == dump(before)
			if got := slices.Contains(fieldsOf(errs), k.key); got != (isFixed && !same) {
				t.Errorf("%s: %s: %v", k.key, v, errs)
			}
		}
	}
	for key, v := range fixed {
		errs := before.NeedRestart(good(t, key+": "+v+"\n"))
		if len(errs) == 0 || !slices.ContainsFunc(errs, func(e FieldError) bool {
			return e.Field == key && strings.Contains(e.Value, v) && strings.Contains(e.Want, "needs a restart")
		}) {
			t.Errorf("%s: %v", key, errs)
		}
	}
	// The documentation says the same.
	for _, f := range Fields() {
		if _, isFixed := fixed[f.Key]; f.NeedsRestart() != isFixed {
			t.Errorf("%s: NeedsRestart %v", f.Key, f.NeedsRestart())
		}
	}
}
