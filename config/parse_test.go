package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
)

const head = "apiVersion: cri-evictd.io/v1alpha1\nkind: EvictionConfiguration\n"

// fails returns the errors of a configuration, which must be Errors.
func fails(t *testing.T, text string) (Config, Errors) {
	t.Helper()
	c, err := Parse([]byte(text))
	if err == nil {
		return c, nil
	}
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatalf("error is a %T: %v", err, err)
	}
	return c, errs
}

func good(t *testing.T, text string) Config {
	t.Helper()
	c, errs := fails(t, head+text)
	if errs != nil {
		t.Fatalf("%s\nis refused: %v", text, errs)
	}
	return c
}

// keyCases are values of every key: those that are right and those that are
// not, with a part of what the message must say.
var keyCases = []struct {
	key  string
	good []string
	bad  map[string]string
}{
	{"mode", []string{"enforce", "observe"}, map[string]string{"watch": "enforce, observe", "1": "a string", `""`: "enforce, observe", "Enforce": "enforce, observe"}},
	{"listen", []string{"unix:///x/a.sock", "unix:/x/a.sock", "/x/a.sock"}, endpointErrors()},
	{"runtimeEndpoint", []string{"unix:///x/a.sock", "unix:/x/a.sock", "/x/a.sock"}, endpointErrors()},
	{"adminSocket", []string{"unix:///x/a.sock", "/x/a.sock"}, endpointErrors()},
	{"proxySocket", []string{"unix:///x/a.sock", "/x/a.sock"}, endpointErrors()},
	{"podsAPISocket", []string{"unix:///x/a.sock", "/x/a.sock"}, endpointErrors()},
	{"stateDir", []string{"/s", "/s/../t/"}, pathErrors()},
	{"runDir", []string{"/s"}, pathErrors()},
	{"kubeletRootDir", []string{"/s"}, pathErrors()},
	{"kubeletConfig", []string{"/s/config.yaml"}, pathErrors()},
	{"podLogsDir", []string{"/s"}, pathErrors()},
	{"kubeconfig", []string{"/s"}, pathErrors()},
	{"memoryAvailableFrom", []string{"verified", "kubelet", "kernel"}, map[string]string{"both": "verified, kubelet or kernel", "[]": "a string"}},
	{"evictionHard", []string{"{}", `{memory.available: auto}`, `{memory.available: "5%", pid.available: "10%"}`, `{nodefs.available: 1Gi}`}, thresholdErrors(true)},
	{"evictionSoft", []string{"{}", "{memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 90s}", `{memory.available: "0%"}`}, thresholdErrors(false)},
	{"evictionMinimumReclaim", []string{"{}", `{memory.available: 0}`, `{memory.available: "0Mi"}`, `{memory.available: 200Mi, nodefs.available: "1%"}`},
		map[string]string{`{memory.available: "0%"}`: "leave the signal out", `{memory.available: -1Mi}`: "0 or more", `{memory.available: auto}`: "quantity",
			`{memory.availabel: 1Mi}`: "did you mean memory.available?", `[1]`: "mapping of signals"}},
	{"evictionSoftGracePeriod", []string{"{}", "{memory.available: 90s}"}, map[string]string{"{memory.available: 90}": "a string", "{memory.available: soon}": "a duration",
		"{memory.available: -1s}": "a duration", "{nope: 1s}": "unknown signal", "{memory.available: null}": "a string", "5": "mapping of signals"}},
	{"evictionPressureTransitionPeriod", []string{"0s", "30s", "24h"}, durationErrors("25h")},
	{"protectStatic", []string{"true", "false", "[]", "[etcd]"}, staticErrors()},
	{"decorateStatus", []string{"true", "false"}, boolErrors()},
	{"protectedNamespaces", []string{"[]", "[a, kube-system]"}, namespaceErrors()},
	{"trustedNamespaces", []string{"[]", "[a]"}, namespaceErrors()},
	{"protectedPodLabels", []string{"{}", `{app: db, on: ""}`}, map[string]string{"{app: true}": "need quotes", "{app: 1}": "need quotes", "{app: }": "needs a value", `{"": x}`: "must not be empty", "[a]": "mapping of label keys"}},
	{"holdMaximum", []string{"1s", "168h", "90m"}, durationErrors("169h")},
	{"handOverTimeout", []string{"1s", "1h", "90s"}, durationErrors("2h")},
	{"evictionMaxPodGracePeriod", []string{"0", "30", "2147483647"}, map[string]string{"-1": "from 0", "2147483648": "to 2147483647", "1.5": "whole number", `"30"`: "whole number"}},
	{"hardMemoryGrace", []string{"0s", "2s", "30s"}, durationErrors("31s")},
	{"imageGCHighThresholdPercent", []string{"81", "100"}, map[string]string{"101": "to 100", "-1": "from 0", "50%": "whole number"}},
	{"imageGCLowThresholdPercent", []string{"0", "84"}, map[string]string{"101": "to 100", "true": "whole number"}},
	{"imageMinimumGCAge", []string{"2m"}, map[string]string{"-2m": "a duration", "2": "a string"}},
	{"imageMaximumGCAge", []string{"0s", "720h"}, map[string]string{"x": "a duration"}},
	{"imageAllowList", []string{"[]", "[docker.io/a, 'b*', sha256:" + strings.Repeat("0f", 32) + "]"}, map[string]string{"a": "list of strings", "[1]": "list of strings", "[ok, 'a*b']": "a prefix", "['sha256:12']": "a digest", "['']": "a reference", "[Not A Name]": "a prefix"}},
	{"metricsBindAddress", []string{"127.0.0.1:10271", `"[::1]:10271"`, ":10271", `""`, `"0"`, "0"}, map[string]string{"10271": "host:port", "localhost": "host:port", "a:0": "host:port", "a:99999": "host:port", "[1]": "host:port", "true": "host:port"}},
	{"kubeconfig", []string{"/etc/kubernetes/kubelet.conf"}, map[string]string{"kubelet.conf": "absolute", "1": "a string"}},
	{"nodeName", []string{"n1", "ip-10-0-0-1.ec2.internal"}, map[string]string{"1": "a string", "N1": "lower-case", "a_b": "DNS name", `""`: "DNS name", "'a,spec.nodeName!=a'": "DNS name"}},
	{"reportMode", []string{"status", "evict", "delete", "none"}, map[string]string{"both": "status, evict, delete, none"}},
	{"killBudget", []string{"1", "60"}, map[string]string{"0": "from 1", "many": "whole number", "2147483648": "to 2147483647"}},
}

func endpointErrors() map[string]string {
	return map[string]string{
		"run/x.sock": "must be absolute", "unix://run/x.sock": "no host", "tcp://1.2.3.4:5": "only unix sockets", "/": "directory", "/x/": "directory",
		`""`: "empty", "5": "a string", "[/x]": "a string", "/" + strings.Repeat("x", 107): "at most 107", `"/x\0y"`: "zero byte",
	}
}

func pathErrors() map[string]string {
	return map[string]string{"x": "absolute path", `""`: "absolute path", "5": "a string", `"/a\0"`: "absolute path"}
}

func boolErrors() map[string]string {
	return map[string]string{`"true"`: "true or false", "1": "true or false", "{}": "true or false"}
}

func staticErrors() map[string]string {
	const want = "true, false or a list"
	return map[string]string{`"true"`: want, "1": want, "{}": want, "etcd": want, "[Etcd]": "is not the name of a pod", `[""]`: "is not the name of a pod"}
}

func namespaceErrors() map[string]string {
	return map[string]string{"kube-system": "list of strings", "[Kube]": `"Kube" is not a namespace`, "[a.b]": `"a.b"`, "[null]": `"" is not`, "[1]": "list of strings", "[" + strings.Repeat("a", 64) + "]": "is not a namespace"}
}

func durationErrors(tooLong string) map[string]string {
	return map[string]string{"5": "a string", "5 minutes": "a duration", "-1s": "a duration", tooLong: "a duration", `""`: "a duration"}
}

func thresholdErrors(hard bool) map[string]string {
	m := map[string]string{
		`{memory.available: 0}`: "must be positive", `{memory.available: "101%"}`: "between 0% and 100%", `{memory.available: lots}`: "not a quantity",
		`{memory.available: [1Gi]}`: "such as 500Mi", `{memory.available: null}`: "such as 500Mi", `{memory.available: true}`: "such as 500Mi",
		`{memory.availabel: 1Gi}`: "did you mean memory.available?", `{cpu.available: 1}`: "one of memory.available", "1Gi": "mapping of signals", "[]": "mapping of signals",
		`{nodefs.available: auto}`: "only",
	}
	if !hard {
		m[`{memory.available: auto}`] = "auto is for evictionHard only"
	}
	return m
}

func TestEveryKey(t *testing.T) {
	tested := map[string]bool{}
	for _, k := range keyCases {
		tested[k.key] = true
		if len(k.good) == 0 || len(k.bad) == 0 {
			t.Errorf("%s: no good or no bad value", k.key)
		}
		for _, v := range k.good {
			if _, errs := fails(t, head+k.key+": "+v+"\n"); errs != nil {
				t.Errorf("%s: %s: refused: %v", k.key, v, errs)
			}
		}
		for v, want := range k.bad {
			_, errs := fails(t, head+k.key+": "+v+"\n")
			if len(errs) != 1 {
				t.Errorf("%s: %s: %d errors, want exactly one: %v", k.key, v, len(errs), errs)
				continue
			}
			e := errs[0]
			if !strings.HasPrefix(e.Field, k.key) || !strings.Contains(e.Want, want) || e.Value == "" || strings.Contains(e.Error(), "\n") {
				t.Errorf("%s: %s: %q, want the field, the value and %q", k.key, v, e, want)
			}
		}
	}
	for _, f := range Fields() {
		if !tested[f.Key] {
			t.Errorf("%s has no test", f.Key)
		}
	}
}

// A value that cannot be used leaves the default in place.
func TestBadValueKeepsTheDefault(t *testing.T) {
	want := Default().complete()
	for _, k := range keyCases {
		for v := range k.bad {
			c, _ := fails(t, head+k.key+": "+v+"\n")
			if got := dump(c); got != dump(want) {
				t.Errorf("%s: %s changed the configuration:\n%s\nwant\n%s", k.key, v, got, dump(want))
			}
		}
	}
}

func TestNullIsAsIfNotWritten(t *testing.T) {
	for _, k := range keyCases {
		c := good(t, k.key+":\n")
		if got := dump(c); got != dump(Default().complete()) {
			t.Errorf("%s: null changed the configuration:\n%s", k.key, got)
		}
	}
}

// The Pods API is looked for where this kubelet serves it.
func TestPodsAPISocketFollowsKubeletRootDir(t *testing.T) {
	if c := good(t, ""); c.PodsAPISocket.Path != "/var/lib/kubelet/pods-api/pods-api.sock" {
		t.Errorf("default: %q", c.PodsAPISocket.Path)
	}
	if c := good(t, "kubeletRootDir: /data/kubelet\n"); c.PodsAPISocket.Path != "/data/kubelet/pods-api/pods-api.sock" {
		t.Errorf("another root: %q", c.PodsAPISocket.Path)
	}
	long := "/" + strings.Repeat("x", 100)
	if c := good(t, "kubeletRootDir: "+long+"\n"); c.PodsAPISocket.Path != "" || c.KubeletRootDir != long {
		t.Errorf("a root too long for a socket: %q", c.PodsAPISocket.Path)
	}
}

func TestProtectStatic(t *testing.T) {
	for text, want := range map[string]struct {
		all   bool
		names string
	}{
		"": {true, ""}, "protectStatic: true\n": {true, ""}, "protectStatic: false\n": {false, ""}, "protectStatic: []\n": {false, ""},
		"protectStatic: [etcd, kube-apiserver]\n": {false, "etcd kube-apiserver"},
	} {
		if c := good(t, text); c.ProtectStatic != want.all || strings.Join(c.StaticNames, " ") != want.names {
			t.Errorf("%q: %t %q", text, c.ProtectStatic, c.StaticNames)
		}
	}
}

func TestValuesArrive(t *testing.T) {
	c := good(t, `mode: observe
listen: /l.sock
runtimeEndpoint: unix:/r.sock
adminSocket: unix:///a.sock
stateDir: /s/
runDir: /r/x/..
kubeletRootDir: /k
kubeletConfig: /k/config.yaml
podsAPISocket: /k/pods.sock
memoryAvailableFrom: kernel
evictionMinimumReclaim: {memory.available: 100Mi}
evictionPressureTransitionPeriod: 30s
protectStatic: false
protectedNamespaces: []
protectedPodLabels: {app: db}
trustedNamespaces: [a, b]
holdMaximum: 2h
decorateStatus: false
kubeconfig: /k/kubelet.conf
nodeName: node-1
reportMode: delete
podLogsDir: /logs
imageGCHighThresholdPercent: 90
`)
	if c.Mode != Observe || c.Listen.Path != "/l.sock" || c.RuntimeEndpoint.Path != "/r.sock" || c.AdminSocket.Path != "/a.sock" ||
		c.ProxySocket.Path != "/r/proxy.sock" || c.StateDir != "/s" || c.RunDir != "/r" || c.KubeletRootDir != "/k" || c.KubeletConfig != "/k/config.yaml" || c.PodsAPISocket.Path != "/k/pods.sock" ||
		c.MemoryAvailableFrom != eviction.FromKernel || c.EvictionMinimumReclaim[eviction.MemoryAvailable].Quantity != 100<<20 ||
		c.PressureTransition != 30*time.Second || c.ProtectStatic || c.ProtectedNamespaces == nil || len(c.ProtectedNamespaces) != 0 ||
		c.ProtectedPodLabels["app"] != "db" || len(c.TrustedNamespaces) != 2 || c.Kubeconfig != "/k/kubelet.conf" || c.NodeName != "node-1" || c.PodLogsDir != "/logs" || c.HoldMaximum != 2*time.Hour || c.DecorateStatus ||
		c.ReportMode != ReportDelete {
		t.Errorf("%s", dump(c))
	}
	if g := c.ImageGC; g.High != 90 || g.Low != 80 || g.MinAge != 2*time.Minute || g.MaxAge != 0 || !g.Configured {
		t.Errorf("image GC: %+v", g)
	}
}
