// Package config reads the daemon's configuration file: strict, with every
// error at once, and with the defaults of docs/configuration.md.
package config

import (
	"time"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

// APIVersion and Kind head the configuration file.
const (
	APIVersion = "cri-evictd.io/v1alpha1"
	Kind       = "EvictionConfiguration"
)

// Default paths.
const (
	DefaultPath            = "/etc/cri-evictd/config.yaml"
	DefaultListen          = "unix:///run/cri-evictd/cri.sock"
	DefaultRuntimeEndpoint = "unix:///run/containerd/containerd.sock"
	DefaultAdminSocket     = "/run/cri-evictd/admin.sock"
	DefaultProxySocket     = "/run/cri-evictd/proxy.sock"
	DefaultStateDir        = "/var/lib/cri-evictd"
	DefaultRunDir          = "/run/cri-evictd"
	DefaultPodLogsDir      = "/var/log/pods"
)

// DefaultMetricsAddress is where the metrics are served.
const DefaultMetricsAddress = "127.0.0.1:10271"

// DefaultKillBudget is how many pods a signal may cost in an hour: one a minute
// is no policy any more but a storm.
const DefaultKillBudget = 60

// Mode says whether decisions are carried out.
type Mode string

// The modes.
const (
	Enforce Mode = "enforce"
	Observe Mode = "observe"
)

// Report is how Kubernetes is told of evictions.
type Report string

// The values of reportMode.
const (
	ReportStatus Report = "status"
	ReportEvict  Report = "evict"
	ReportDelete Report = "delete"
	ReportNone   Report = "none"
)

// Config is the configuration with its defaults filled in and every value
// valid.
type Config struct {
	Mode            Mode
	Listen          cri.Endpoint
	RuntimeEndpoint cri.Endpoint
	AdminSocket     cri.Endpoint
	ProxySocket     cri.Endpoint
	StateDir        string
	RunDir          string
	KubeletRootDir  string
	KubeletConfig   string
	// PodsAPISocket is kubelet's.
	PodsAPISocket cri.Endpoint
	// Kubeconfig is a path, empty for no access to the API server. NodeName is empty
	// for the host name.
	Kubeconfig string
	NodeName   string
	ReportMode Report
	// PodLogsDir is where kubelet keeps the pods' logs.
	PodLogsDir string

	MemoryAvailableFrom eviction.MemoryAvailableFrom
	// EvictionHard has an entry for every signal in Defaults and for each that
	// was written.
	EvictionHard           map[eviction.Signal]eviction.Threshold
	EvictionMinimumReclaim map[eviction.Signal]eviction.Threshold
	// EvictionSoft has only signals that are in EvictionSoftGrace too, unless
	// they are off.
	EvictionSoft       map[eviction.Signal]eviction.Threshold
	EvictionSoftGrace  map[eviction.Signal]time.Duration
	MaxPodGrace        time.Duration // evictionMaxPodGracePeriod
	HardMemoryGrace    time.Duration // 0: SIGKILL at once
	KillBudget         int           // per signal and hour
	PressureTransition time.Duration
	// MetricsBindAddress is host:port, empty for no metrics.
	MetricsBindAddress string
	ProtectStatic      bool
	// StaticNames are the static pods that ProtectStatic false leaves protected.
	StaticNames         []string
	ProtectedNamespaces []string
	ProtectedPodLabels  map[string]string
	TrustedNamespaces   []string
	HoldMaximum         time.Duration
	DecorateStatus      bool
	// HandOverTimeout is how long calls may go on in a process that was replaced.
	HandOverTimeout time.Duration
	// ImageGC is how images are collected.
	ImageGC gc.Settings
	// Warnings are about values that are valid and probably not meant.
	Warnings []FieldError
}

// defaultHard are kubelet's defaults plus our margins (design §7).
func defaultHard() map[eviction.Signal]eviction.Threshold {
	out := map[eviction.Signal]eviction.Threshold{}
	for s, text := range map[eviction.Signal]string{
		eviction.MemoryAvailable:   "auto",
		eviction.NodeFsAvailable:   "12%",
		eviction.NodeFsInodesFree:  "6%",
		eviction.ImageFsAvailable:  "17%",
		eviction.ImageFsInodesFree: "6%",
	} {
		t, err := eviction.ParseThreshold(text)
		if err == nil { // a test parses them all
			out[s] = t
		}
	}
	return out
}
