package lab

import (
	"fmt"
	"path/filepath"
	"strings"
)

// maxSocketPath is sun_path without its terminating zero (unix(7)).
const maxSocketPath = 107

// nriPlugin is the part of containerd 2 that serves NRI.
const nriPlugin = "io.containerd.nri.v1.nri"

// layout are the paths of one containerd, all below dir.
type layout struct{ dir string }

func (l layout) root() string     { return filepath.Join(l.dir, "root") }
func (l layout) state() string    { return filepath.Join(l.dir, "state") }
func (l layout) socket() string   { return filepath.Join(l.dir, "ctd.sock") }
func (l layout) config() string   { return filepath.Join(l.dir, "config.toml") }
func (l layout) log() string      { return filepath.Join(l.dir, "containerd.log") }
func (l layout) archive() string  { return filepath.Join(l.dir, "images.tar") }
func (l layout) runcRoot() string { return filepath.Join(l.dir, "runc") }
func (l layout) nri() string      { return filepath.Join(l.dir, "nri.sock") }
func (l layout) none() string     { return filepath.Join(l.dir, "none") } // exists, stays empty
func (l layout) tmp() string      { return filepath.Join(l.dir, "tmp") }

// shimSockets is where 2.4's shims listen; 1.6's always use /run/containerd/s.
// It is empty if the names (64 hex digits) would be too long for a socket.
func (l layout) shimSockets() string {
	dir := filepath.Join(l.dir, "s")
	if len(dir)+1+64 > maxSocketPath {
		return ""
	}
	return dir
}

// settings are what differs from lab to lab.
type settings struct {
	layout
	runc           string
	major          int // of containerd: 1 or 2
	systemdCgroup  bool
	restrictOOM    bool   // no CAP_SYS_RESOURCE: negative oom_score_adj cannot be set
	snapshotter    string // "overlayfs" or "native"
	maxMessageSize int    // bytes
	full           *CRIOptions
}

// render returns containerd's configuration. Everything containerd would
// create or watch outside its directory is pointed into it or switched off:
// /opt/containerd, /etc/cni, /var/run/nri, /run/containerd/runc.
func (s settings) render() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }

	line("version = %d", s.major+1) // containerd 1: file format 2; containerd 2: format 3
	line("root = %q", s.root())
	line("state = %q", s.state())
	line("imports = []")
	// Not needed for CRI, and some look around on the host.
	line("disabled_plugins = [%s]", quoteList(s.disabled()))
	line("[grpc]")
	line("  address = %q", s.socket())
	line("  max_recv_message_size = %d", s.maxMessageSize)
	line("  max_send_message_size = %d", s.maxMessageSize)
	line("[plugins.%q]", "io.containerd.internal.v1.opt")
	line("  path = %q", filepath.Join(s.dir, "opt"))
	if s.major == 1 {
		s.renderCRI1(line)
	} else {
		s.renderCRI2(line)
	}
	return b.String()
}

func (s settings) disabled() []string {
	if s.major == 1 {
		return []string{
			"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
			"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
			"io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
		}
	}
	off := []string{
		"io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
		"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
		"io.containerd.snapshotter.v1.zfs",
		"io.containerd.image-verifier.v1.bindir",
		"io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
	}
	if s.full == nil || !s.full.NRI {
		off = append(off, nriPlugin)
	}
	return off
}

func (s settings) renderCRI1(line func(string, ...any)) {
	const cri = "io.containerd.grpc.v1.cri"
	line("[plugins.%q]", cri)
	line("  sandbox_image = %q", PauseImage)
	line("  restrict_oom_score_adj = %t", s.restrictOOM)
	line("[plugins.%q.cni]", cri)
	line("  bin_dir = %q", s.none())
	line("  conf_dir = %q", s.none())
	line("[plugins.%q.containerd]", cri)
	line("  snapshotter = %q", s.snapshotter)
	line("  default_runtime_name = \"runc\"")
	s.renderRunc(line, cri)
}

func (s settings) renderCRI2(line func(string, ...any)) {
	const images, cri = "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"
	line("[plugins.%q]", images)
	line("  snapshotter = %q", s.snapshotter)
	line("[plugins.%q.pinned_images]", images)
	line("  sandbox = %q", PauseImage)
	if s.full != nil {
		line("[plugins.%q.registry]", images)
		line("  config_path = %q", s.full.Registries)
	}
	line("[plugins.%q]", cri)
	line("  restrict_oom_score_adj = %t", s.restrictOOM)
	line("  cdi_spec_dirs = []")
	line("  netns_mounts_under_state_dir = true") // not in /run/netns
	plugins, networks := s.none(), s.none()
	if s.full != nil {
		plugins, networks = s.full.CNIPlugins, s.full.CNIConfig
	}
	line("[plugins.%q.cni]", cri)
	line("  bin_dirs = [%q]", plugins)
	line("  conf_dir = %q", networks)
	line("[plugins.%q.containerd]", cri)
	line("  default_runtime_name = \"runc\"")
	s.renderRunc(line, cri)
	if dir := s.shimSockets(); dir != "" {
		line("[plugins.%q]", "io.containerd.shim.v1.manager")
		line("  socket_dir = %q", dir)
	}
	if s.full != nil && s.full.NRI {
		line("[plugins.%q]", nriPlugin)
		line("  disable = false")
		line("  disable_connections = false")
		line("  socket_path = %q", s.nri())
		line("  plugin_path = %q", s.none())
		line("  plugin_config_path = %q", s.none())
	}
}

func (s settings) renderRunc(line func(string, ...any), cri string) {
	line("[plugins.%q.containerd.runtimes.runc]", cri)
	line("  runtime_type = \"io.containerd.runc.v2\"")
	line("[plugins.%q.containerd.runtimes.runc.options]", cri)
	line("  BinaryName = %q", s.runc)
	line("  Root = %q", s.runcRoot())
	line("  SystemdCgroup = %t", s.systemdCgroup)
}

func quoteList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(quoted, ", ")
}
