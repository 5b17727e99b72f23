package config

import (
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// The defaults as they are documented are those that apply: writing each of
// them changes nothing.
func TestDocumentedDefaultsAreTheDefaults(t *testing.T) {
	words := map[string]bool{"none": true, "none in this version": true, "below kubeletRootDir": true, "the host name": true, "proxy.sock in runDir": true, "pods-api/pods-api.sock in kubeletRootDir": true}
	compared := 0
	for _, f := range Fields() {
		if words[f.Default] {
			continue
		}
		value := f.Default
		if f.Key == "evictionHard" {
			value = "\n  " + strings.ReplaceAll(value, ", ", "\n  ")
		}
		c := good(t, f.Key+": "+value+"\n")
		c.Warnings, c.ImageGC.Configured = nil, false
		if got, want := dump(c), dump(Default().complete()); got != want {
			t.Errorf("%s: the documented default %q changes the configuration:\n%s\nwant\n%s", f.Key, f.Default, got, want)
		}
		compared++
	}
	if compared < 24 {
		t.Errorf("only %d defaults were compared", compared)
	}
	if c := good(t, "runDir: /x\n"); c.ProxySocket.Path != "/x/proxy.sock" {
		t.Errorf("proxySocket is %s", c.ProxySocket)
	}
}

func TestFieldsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Fields() {
		if f.Key == "" || f.Default == "" || f.Doc == "" || f.set == nil || seen[f.Key] {
			t.Errorf("%+v: incomplete or twice", f)
		}
		seen[f.Key] = true
		good(t, f.Key+": "+firstGood(f.Key)+"\n")
	}
	// design §7: the list of keys is fixed.
	for _, key := range strings.Fields(`mode listen runtimeEndpoint adminSocket proxySocket stateDir runDir metricsBindAddress kubeletRootDir
		kubeletConfig podLogsDir podsAPISocket kubeconfig nodeName memoryAvailableFrom protectStatic protectedNamespaces protectedPodLabels
		trustedNamespaces holdMaximum reportMode imageAllowList decorateStatus killBudget hardMemoryGrace
		evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod evictionMaxPodGracePeriod
		imageGCHighThresholdPercent imageGCLowThresholdPercent imageMinimumGCAge imageMaximumGCAge handOverTimeout`) {
		if !seen[key] {
			t.Errorf("%s is missing", key)
		}
		delete(seen, key)
	}
	if len(seen) > 0 {
		t.Errorf("not in the design: %v", seen)
	}
}

func firstGood(key string) string {
	for _, k := range keyCases {
		if k.key == key {
			return k.good[0]
		}
	}
	return ""
}

// Constants of this package are read without looking at the error.
func TestConstantsAreValid(t *testing.T) {
	for _, s := range []string{DefaultListen, DefaultRuntimeEndpoint, DefaultAdminSocket, DefaultProxySocket} {
		if _, err := cri.ParseEndpoint("x", s); err != nil {
			t.Error(err)
		}
	}
	if n := len(defaultHard()); n != 5 {
		t.Errorf("%d default thresholds, 5 are written down", n)
	}
	if c := Default().complete(); c.ProxySocket.Path != DefaultProxySocket {
		t.Errorf("%s, want %s", c.ProxySocket.Path, DefaultProxySocket)
	}
	for s, th := range defaultHard() {
		if th.Auto != (s == eviction.MemoryAvailable) || th.Off {
			t.Errorf("%s: %+v", s, th)
		}
	}
}
