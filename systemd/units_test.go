package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unit reads the settings of a unit file: section.key to its values.
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	out, section := map[string][]string{}, ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
		default:
			key, value, _ := strings.Cut(line, "=")
			out[section+"."+key] = append(out[section+"."+key], value)
		}
	}
	return out
}

// What the units promise, each of which something broke without.
func TestUnits(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"cri-evictd.socket": {
			"Socket.ListenStream": "/run/cri-evictd/cri.sock", "Socket.FileDescriptorName": "cri", "Socket.SocketMode": "0660",
			"Socket.Service": ProxyUnit, "Socket.TriggerLimitIntervalSec": "0", "Unit.Before": "kubelet.service",
		},
		ProxyUnit: {
			"Service.Type": "notify", "Service.WatchdogSec": "5", "Service.WatchdogSignal": "SIGKILL", "Service.Restart": "always",
			"Unit.StartLimitIntervalSec": "0", "Unit.Requires": "cri-evictd.socket", "Service.Slice": "cri-evictd.slice",
			"Service.OOMScoreAdjust": "-999", "Service.CapabilityBoundingSet": "", "Service.RuntimeDirectoryPreserve": "yes",
		},
		"cri-evictd.service": {
			"Service.Type": "notify", "Service.WatchdogSec": "5", "Service.WatchdogSignal": "SIGKILL", "Service.Restart": "always",
			"Unit.StartLimitIntervalSec": "0", "Service.Slice": "cri-evictd.slice", "Service.OOMScoreAdjust": "-999",
			"Service.RuntimeDirectoryPreserve": "yes",
		},
		BypassUnit: {
			"Service.Type": "exec", "Service.Sockets": "cri-evictd.socket", "Unit.Conflicts": ProxyUnit, "Unit.StartLimitIntervalSec": "0",
			"Service.Slice": "cri-evictd.slice",
		},
	} {
		got := unit(t, name)
		for key, value := range want {
			if !slices.Equal(got[key], []string{value}) {
				t.Errorf("%s: %s is %q, want %q", name, key, got[key], value)
			}
		}
	}
	// A restart of the evictor must not start the proxy beside the bypass.
	for key := range unit(t, "cri-evictd.service") {
		for _, pulls := range []string{"Wants", "Requires", "BindsTo", "Upholds"} {
			if key == "Unit."+pulls {
				t.Errorf("cri-evictd.service has %s", key)
			}
		}
	}
	// The kernel protects no more than the parent does.
	if unit(t, "cri.slice")["Slice.MemoryMin"][0] != unit(t, "cri-evictd.slice")["Slice.MemoryMin"][0] {
		t.Error("cri.slice protects another amount than cri-evictd.slice")
	}
}

// What breaks the evictor (issue 9, facts of the kernel).
func TestEvictorMayDoItsJob(t *testing.T) {
	got := unit(t, "cri-evictd.service")
	for _, key := range []string{"ProtectControlGroups", "ProcSubset", "RestrictRealtime", "ProtectKernelTunables", "PrivateNetwork", "PrivateUsers"} {
		if v := got["Service."+key]; v != nil {
			t.Errorf("%s=%s", key, v)
		}
	}
	for _, c := range []string{"CAP_KILL", "CAP_SYS_NICE", "CAP_IPC_LOCK"} {
		if !slices.Contains(strings.Fields(got["Service.CapabilityBoundingSet"][0]), c) {
			t.Errorf("no %s", c)
		}
	}
}

// systemd's own opinion, where it is installed. Programs need not be there for it.
func TestUnitsVerify(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here; test/vm runs it as well")
	}
	dir := t.TempDir()
	var paths []string
	for _, pattern := range []string{"*.service", "*.socket", "*.slice", "*.timer"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer("/usr/bin/cri-evictd", "/bin/true", "/usr/lib/cri-evictd/proxy-stopped", "/bin/true",
				"/usr/lib/cri-evictd/bypassed", "/bin/true").Replace(string(b))
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
	}
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, paths...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
