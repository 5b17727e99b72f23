package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/golden"
)

// dump prints every value, also those behind pointers.
func dump(c Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s %s %s %s %s %q %q %s %s\n", c.Mode, c.Listen, c.RuntimeEndpoint, c.AdminSocket, c.ProxySocket, c.StateDir, c.RunDir, c.KubeletRootDir, c.KubeletConfig, c.PodLogsDir, c.MemoryAvailableFrom, c.PodsAPISocket)
	fmt.Fprintf(&b, "%s %s %s\n", c.Kubeconfig, c.NodeName, c.ReportMode)
	for _, s := range eviction.Signals() {
		fmt.Fprintf(&b, "%s hard %s reclaim %s\n", s, thresholdText(c.EvictionHard, s), thresholdText(c.EvictionMinimumReclaim, s))
	}
	for _, s := range eviction.Signals() {
		grace, has := c.EvictionSoftGrace[s]
		fmt.Fprintf(&b, "%s soft %s grace %s %v\n", s, thresholdText(c.EvictionSoft, s), grace, has)
	}
	fmt.Fprintf(&b, "%s %s %d %q %v\n", c.MaxPodGrace, c.HardMemoryGrace, c.KillBudget, c.MetricsBindAddress, c.Warnings)
	fmt.Fprintf(&b, "%s %v %q %q %v %q %s %v %+v\n", c.PressureTransition, c.ProtectStatic, c.StaticNames, c.ProtectedNamespaces, c.ProtectedPodLabels, c.TrustedNamespaces, c.HoldMaximum, c.DecorateStatus, c.ImageGC)
	return b.String()
}

// The flag is read by golden.Check.
var _ = golden.Flag()

func thresholdText(m map[eviction.Signal]eviction.Threshold, s eviction.Signal) string {
	t, ok := m[s]
	if !ok {
		return "none"
	}
	return fmt.Sprintf("%q=%d/%v/%v/%v", t.Text, t.Quantity, t.Share, t.Off, t.Auto)
}

// The text a person sees, whole.
func TestErrorsAreToldAllAtOnce(t *testing.T) {
	for name, text := range map[string]string{
		"everything": `apiVersion: v1
kind: KubeletConfiguration
mode: watch
listen: run/cri.sock
runtimeEndpoint: tcp://127.0.0.1:1
evictionHard:
  memory.available: 0
  memory.availabel: 100Mi
  nodefs.available: "110%"
evictionHrad: {}
EvictionSoft: {}
somethingElse: [1, 2, 3]
holdMaximum: forever
protectStatic: "yes"
protectedNamespaces: [kube-system, Not_A_Name]
stateDir: 5
killBudget: 0
`,
		"empty":       "",
		"only-kind":   "kind: EvictionConfiguration\n",
		"not-yaml":    head + "evictionHard: {\n",
		"tab":         head + "\tmode: observe\n",
		"list":        "- 1\n- 2\n",
		"word":        "hello\n",
		"twice":       head + "mode: observe\nmode: enforce\n",
		"twice-inner": head + "evictionHard:\n  memory.available: 1Gi\n  memory.available: 2Gi\n",
		"two-docs":    head + "---\n" + head,
		"binary":      "\x00\x01\x02",
		"conflicts":   head + "listen: /run/containerd/containerd.sock\nadminSocket: /a\nproxySocket: unix:///a\n",
		"long-value":  head + "mode: " + strings.Repeat("ä", 500) + "\n",
		"long-rundir": head + "runDir: /" + strings.Repeat("x", 100) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, errs := fails(t, text)
			if errs == nil {
				t.Fatal("accepted")
			}
			golden.Check(t, "errors-"+name+".txt", []byte(errs.Error()+"\n"))
			forwardable(t, c)
		})
	}
}

// forwardable fails if the proxy could not run with c.
func forwardable(t *testing.T, c Config) {
	t.Helper()
	if c.Listen.Path == "" || c.RuntimeEndpoint.Path == "" || c.Listen == c.RuntimeEndpoint || c.ProxySocket == c.Listen || c.ProxySocket == c.RuntimeEndpoint {
		t.Errorf("not fit for forwarding: listen %q, runtimeEndpoint %q, proxySocket %q", c.Listen.Path, c.RuntimeEndpoint.Path, c.ProxySocket.Path)
	}
}

func TestDocumentsThatAreFine(t *testing.T) {
	for name, text := range map[string]string{
		"plain":                  head,
		"leading marker":         "---\n" + head,
		"comment before":         "# x\n---\n" + head,
		"trailing marker":        head + "---\n",
		"trailing comment":       head + "---\n# nothing\n",
		"end marker":             head + "...\n",
		"windows line ends":      strings.ReplaceAll(head+"mode: observe\n", "\n", "\r\n"),
		"JSON":                   `{"apiVersion":"` + APIVersion + `","kind":"` + Kind + `","mode":"observe"}`,
		"byte order mark":        "\ufeff" + head,
		"dashes inside a scalar": head + "kubeletConfig: |\n  /a\n  ---\n  b\n",
	} {
		if _, errs := fails(t, text); errs != nil {
			t.Errorf("%s: %v", name, errs)
		}
	}
	for name, text := range map[string]string{
		"second without marker before": head + "---\nmode: observe\n",
		"marker with comment":          head + "--- # more\nmode: observe\n",
		"marker with windows line end": head + "---\r\nmode: observe\r\n",
		"second broken":                head + "---\n{\n",
		"second after end marker":      head + "...\n---\nmode: observe\n",
	} {
		if _, errs := fails(t, text); errs == nil || errs[0].Field != "document" {
			t.Errorf("%s: what follows the first document is ignored silently: %v", name, errs)
		}
	}
}

// bugs.md B44: one threshold does not turn the others off.
func TestUnspecifiedSignalsKeepDefaults(t *testing.T) {
	c := good(t, "evictionHard:\n  memory.available: 200Mi\n  imagefs.available: \"0%\"\n  pid.available: 10%\n")
	for s, want := range map[eviction.Signal]string{
		eviction.MemoryAvailable: "200Mi", eviction.NodeFsAvailable: "12%", eviction.NodeFsInodesFree: "6%", eviction.ImageFsInodesFree: "6%", eviction.PIDAvailable: "10%",
	} {
		if got := c.EvictionHard[s]; got.Text != want || got.Off {
			t.Errorf("%s is %+v, want %s", s, got, want)
		}
	}
	if off := c.EvictionHard[eviction.ImageFsAvailable]; !off.Off || off.Resolve(1000) != 0 {
		t.Errorf(`imagefs.available "0%%" is %+v, want off`, off)
	}
	if again := Default().EvictionHard[eviction.ImageFsAvailable]; again.Off {
		t.Error("one configuration changed the defaults of the next")
	}
}

func TestNumbersWithoutQuotes(t *testing.T) {
	for text, want := range map[string]int64{"104857600": 104857600, "1e9": 1_000_000_000, "1_000": 1000, "1.5e3": 1500, "0x100": 256, "1000000000000": 1_000_000_000_000} {
		c := good(t, "evictionHard:\n  memory.available: "+text+"\n")
		if got := c.EvictionHard[eviction.MemoryAvailable].Quantity; got != want {
			t.Errorf("%s is read as %d, want %d", text, got, want)
		}
	}
}

// bugs.md B91: three spellings of one endpoint.
func TestEndpointSpellings(t *testing.T) {
	for _, s := range []string{"unix:///x/y.sock", "unix:/x/y.sock", "/x/y.sock", "/x//y.sock", "/x/./y.sock"} {
		if c := good(t, "listen: "+s+"\n"); c.Listen.Path != "/x/y.sock" {
			t.Errorf("%s is %q", s, c.Listen.Path)
		}
	}
}

func TestSuggestions(t *testing.T) {
	for written, want := range map[string]string{
		"evictionhard": "; did you mean evictionHard?", "evictionHards": "; did you mean evictionHard?", "evictonHard": "; did you mean evictionHard?",
		"runtimeEndPoint": "; did you mean runtimeEndpoint?", "Mode": "; did you mean mode?", "mod": "; did you mean mode?",
		"xy": "", "": "", "somethingElse": "",
	} {
		_, errs := fails(t, head+fmt.Sprintf("%q: 1\n", written))
		if len(errs) != 1 || errs[0].Want != "unknown key"+want {
			t.Errorf("%q: %v, want %q", written, errs, want)
		}
	}
}
