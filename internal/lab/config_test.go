package lab

import (
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	base := settings{
		layout: layout{dir: "/tmp/x/ctd"}, runc: "/cache/runc", restrictOOM: true,
		snapshotter: "overlayfs", maxMessageSize: 64 << 20,
	}
	tests := []struct {
		name   string
		change func(*settings)
		want   []string
		not    []string
	}{
		{"1.x", func(s *settings) { s.major = 1 }, []string{
			"version = 2\n", `root = "/tmp/x/ctd/root"`, `address = "/tmp/x/ctd/ctd.sock"`,
			"[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"" + PauseImage + "\"\n  restrict_oom_score_adj = true",
			`snapshotter = "overlayfs"`, `BinaryName = "/cache/runc"`, `Root = "/tmp/x/ctd/runc"`, "SystemdCgroup = false",
			"max_recv_message_size = 67108864",
		}, []string{"cri.v1.runtime", "socket_dir"}},
		{"2.x", func(s *settings) { s.major = 2 }, []string{
			"version = 3\n",
			"[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"" + PauseImage + "\"",
			"[plugins.\"io.containerd.cri.v1.runtime\"]\n  restrict_oom_score_adj = true",
			`[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]`,
			`socket_dir = "/tmp/x/ctd/s"`, `"io.containerd.nri.v1.nri"`,
		}, []string{"grpc.v1.cri", "sandbox_image"}},
		{"systemd, native, all capabilities", func(s *settings) {
			s.major, s.systemdCgroup, s.snapshotter, s.restrictOOM = 2, true, "native", false
		}, []string{"SystemdCgroup = true", `snapshotter = "native"`, "restrict_oom_score_adj = false"}, []string{"overlayfs"}},
		{"all of CRI", func(s *settings) {
			s.major, s.full = 2, &CRIOptions{CNIPlugins: "/cache/cni", CNIConfig: "/tmp/x/net", Registries: "/tmp/x/reg", NRI: true}
		}, []string{
			`bin_dirs = ["/cache/cni"]`, `conf_dir = "/tmp/x/net"`, `config_path = "/tmp/x/reg"`,
			"[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = false", `socket_path = "/tmp/x/ctd/nri.sock"`,
			"netns_mounts_under_state_dir = true",
		}, []string{`"io.containerd.nri.v1.nri",`, `, "io.containerd.nri.v1.nri"]`}},
		{"no room for shim sockets", func(s *settings) {
			s.major, s.layout.dir = 2, "/tmp/"+strings.Repeat("d", 40)
		}, nil, []string{"socket_dir"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := base
			tt.change(&s)
			got := s.render()
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(got, not) {
					t.Errorf("%q in\n%s", not, got)
				}
			}
			// Defaults that would be made or watched on the host.
			for _, host := range []string{"/opt/", "/etc/", "/var/", "/run/"} {
				if strings.Contains(got, `"`+host) {
					t.Errorf("a path of the host, %s…, in\n%s", host, got)
				}
			}
		})
	}
}
