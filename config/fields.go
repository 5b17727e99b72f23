package config

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// Field describes one key of the file: for reading it and for the table in
// docs/configuration.md.
type Field struct {
	Key     string
	Default string
	Unit    string
	Bounds  string
	Doc     string

	set func(r *reader, c *Config)
	// fixed returns the value of a key that needs a restart to change; nil for
	// all that a reload applies.
	fixed func(c *Config) string
}

// NeedsRestart says whether a change of the key needs a restart.
func (f Field) NeedsRestart() bool { return f.fixed != nil }

// Fields lists every key of the file, in the order of the documentation.
func Fields() []Field {
	return append([]Field{
		{Key: "mode", Default: "enforce", Bounds: "enforce, observe", Doc: "observe decides and explains, and holds and kills nothing",
			set: func(r *reader, c *Config) {
				if m := r.oneOf(string(Enforce), string(Observe)); m != "" {
					c.Mode = Mode(m)
				}
			}},
		{Key: "listen", Default: DefaultListen, Unit: "unix endpoint", Bounds: "absolute, at most 107 bytes", Doc: "the CRI socket that kubelet is pointed at",
			set:   func(r *reader, c *Config) { r.endpoint(&c.Listen) },
			fixed: func(c *Config) string { return c.Listen.String() }},
		{Key: "runtimeEndpoint", Default: DefaultRuntimeEndpoint, Unit: "unix endpoint", Bounds: "absolute, at most 107 bytes", Doc: "the runtime's own CRI socket",
			set:   func(r *reader, c *Config) { r.endpoint(&c.RuntimeEndpoint) },
			fixed: func(c *Config) string { return c.RuntimeEndpoint.String() }},
		{Key: "adminSocket", Default: DefaultAdminSocket, Unit: "path", Bounds: "absolute, at most 107 bytes", Doc: "where status, explain and holds ask",
			set:   func(r *reader, c *Config) { r.endpoint(&c.AdminSocket) },
			fixed: func(c *Config) string { return c.AdminSocket.Path }},
		{Key: "proxySocket", Default: "proxy.sock in runDir", Unit: "path", Bounds: "absolute, at most 107 bytes", Doc: "where the proxy tells the evictor what passes through it",
			set:   func(r *reader, c *Config) { r.endpoint(&c.ProxySocket) },
			fixed: func(c *Config) string { return c.ProxySocket.Path }},
		{Key: "stateDir", Default: DefaultStateDir, Unit: "path", Bounds: "absolute", Doc: "the ledger: history, back-offs, copies of the holds",
			set:   func(r *reader, c *Config) { r.path(&c.StateDir) },
			fixed: func(c *Config) string { return c.StateDir }},
		{Key: "runDir", Default: DefaultRunDir, Unit: "path", Bounds: "absolute, on a tmpfs", Doc: "the holds file",
			set:   func(r *reader, c *Config) { r.path(&c.RunDir) },
			fixed: func(c *Config) string { return c.RunDir }},
		{Key: "kubeletRootDir", Default: "/var/lib/kubelet", Unit: "path", Bounds: "absolute", Doc: "kubelet's --root-dir: nodefs is its file system, and the pods' volumes lie below it",
			set:   func(r *reader, c *Config) { r.path(&c.KubeletRootDir) },
			fixed: func(c *Config) string { return c.KubeletRootDir }},
		{Key: "kubeletConfig", Default: "none", Unit: "path", Bounds: "absolute", Doc: "kubelet's configuration file; its hard memory threshold is our floor",
			set: func(r *reader, c *Config) { r.path(&c.KubeletConfig) }},
		{Key: "podsAPISocket", Default: "pods-api/pods-api.sock in kubeletRootDir", Unit: "path", Bounds: "absolute, at most 107 bytes", Doc: "kubelet's Pods API (1.37): exact requests, priorities and tolerations; where it is not served other sources are used",
			set:   func(r *reader, c *Config) { r.endpoint(&c.PodsAPISocket) },
			fixed: func(c *Config) string { return c.PodsAPISocket.Path }},
		{Key: "memoryAvailableFrom", Default: "verified", Bounds: "verified, kubelet, kernel", Doc: "the reading memory.available is compared with; verified needs two to agree",
			set: func(r *reader, c *Config) {
				s, ok := r.word()
				if !ok {
					return
				}
				f, err := eviction.ParseMemoryAvailableFrom(s)
				if err != nil {
					r.fail(err.Error())
					return
				}
				c.MemoryAvailableFrom = f
			}},
		{Key: "evictionHard", Default: "memory.available: auto, nodefs.available: 12%, nodefs.inodesFree: 6%, imagefs.available: 17%, imagefs.inodesFree: 6%",
			Unit: "quantity or percentage by signal", Bounds: "above 0, at most 100%; \"0%\" turns a signal off", Doc: "hard thresholds; signals that are not written keep their defaults; allocatableMemory.available is memory.available's unless it is written; containerfs follows nodefs or imagefs; pid.available is off unless it is written",
			set: func(r *reader, c *Config) { r.thresholds(c.EvictionHard, thresholdOf) }},
		{Key: "evictionMinimumReclaim", Default: "none", Unit: "quantity or percentage by signal", Bounds: "0 or more", Doc: "how far above its threshold a signal must be to count as clear",
			set: func(r *reader, c *Config) { r.thresholds(c.EvictionMinimumReclaim, reclaimOf) }},
		{Key: "evictionSoft", Default: "none", Unit: "quantity or percentage by signal", Bounds: "above 0, at most 100%; \"0%\" turns a signal off", Doc: "soft thresholds: only pods above their request are evicted, with their grace",
			set: func(r *reader, c *Config) { r.thresholds(c.EvictionSoft, softOf) }},
		{Key: "evictionSoftGracePeriod", Default: "none", Unit: "duration by signal", Bounds: "0s or more", Doc: "how long a soft threshold must be met without a break; every signal of evictionSoft needs one",
			set: func(r *reader, c *Config) { r.durations(c.EvictionSoftGrace) }},
		{Key: "evictionMaxPodGracePeriod", Default: "0", Unit: "seconds", Bounds: "0 to 2147483647", Doc: "the longest grace a soft eviction gives a pod; its own is never exceeded, and at least 2 s are given",
			set: func(r *reader, c *Config) {
				var n int64
				if r.integer(&n, 0, 1<<31-1) {
					c.MaxPodGrace = time.Duration(n) * time.Second
				}
			}},
		{Key: "hardMemoryGrace", Default: "0s", Unit: "duration", Bounds: "0s to 30s", Doc: "what a hard memory eviction gives a pod before SIGKILL; 0s kills at once, kubelet gives 2s",
			set: func(r *reader, c *Config) { r.duration(&c.HardMemoryGrace, 0, 30*time.Second) }},
		{Key: "killBudget", Default: strconv.Itoa(DefaultKillBudget), Unit: "pods per signal and hour", Bounds: "1 to 2147483647", Doc: "a signal that cost this many only observes, unless available is below the floor",
			set: func(r *reader, c *Config) {
				var n int64
				if r.integer(&n, 1, 1<<31-1) {
					c.KillBudget = int(n)
				}
			}},
		{Key: "evictionPressureTransitionPeriod", Default: "5m", Unit: "duration", Bounds: "0s (= 5m, as in kubelet) to 24h", Doc: "how long a condition stays after its signal is clear; a hold lasts at least as long",
			set: func(r *reader, c *Config) {
				r.duration(&c.PressureTransition, 0, 24*time.Hour)
				if c.PressureTransition == 0 {
					c.PressureTransition = defaultTransition
				}
			}},
		{Key: "protectStatic", Default: "true", Bounds: "true, false, names of static pods", Doc: "static pods and mirrors are never victims; a list protects only those it names, with or without the node's name; on a node with static pods of the control plane false, and a list that does not name them all, act as true and are a problem",
			set: func(r *reader, c *Config) { r.protectStatic(c) }},
		{Key: "protectedNamespaces", Default: "[kube-system]", Unit: "namespaces", Bounds: "DNS labels", Doc: "pods of these namespaces are never victims; [] protects none",
			set: func(r *reader, c *Config) { r.namespaces(&c.ProtectedNamespaces) }},
		{Key: "protectedPodLabels", Default: "none", Unit: "labels", Bounds: "key: value", Doc: "pods of trusted namespaces with one of these labels are never victims",
			set: func(r *reader, c *Config) { r.labels(&c.ProtectedPodLabels) }},
		{Key: "trustedNamespaces", Default: "[kube-system]", Unit: "namespaces", Bounds: "DNS labels", Doc: "only the annotations and labels of these namespaces' pods count",
			set: func(r *reader, c *Config) { r.namespaces(&c.TrustedNamespaces) }},
		{Key: "holdMaximum", Default: "1h", Unit: "duration", Bounds: "1s to 168h", Doc: "a hold ends after this time whatever the pressure",
			set: func(r *reader, c *Config) { r.duration(&c.HoldMaximum, time.Second, 7*24*time.Hour) }},
		{Key: "decorateStatus", Default: "true", Bounds: "true, false", Doc: "ContainerStatus of an evicted pod says Evicted and why",
			set: func(r *reader, c *Config) { r.boolean(&c.DecorateStatus) }},
		{Key: "handOverTimeout", Default: "2m", Unit: "duration", Bounds: "1s to 1h", Doc: "how long calls that are under way may go on in the old process after an upgrade; endless streams end with Unavailable when it is over",
			set: func(r *reader, c *Config) { r.duration(&c.HandOverTimeout, time.Second, time.Hour) }},
		{Key: "kubeconfig", Default: "none", Unit: "path", Bounds: "absolute", Doc: "access to the API server, by which Kubernetes is told of evictions, and where this node's pods are followed as well; kubelet's own will do, exec plugins and rotating certificates included",
			set:   func(r *reader, c *Config) { r.path(&c.Kubeconfig) },
			fixed: func(c *Config) string { return c.Kubeconfig }},
		{Key: "nodeName", Default: "the host name", Unit: "name", Bounds: "DNS name of at most 253 bytes", Doc: "this node's name in the cluster, as in kubelet's --hostname-override",
			set:   func(r *reader, c *Config) { r.nodeName(&c.NodeName) },
			fixed: func(c *Config) string { return c.NodeName }},
		{Key: "reportMode", Default: string(ReportStatus), Bounds: "status, evict, delete, none", Doc: "how Kubernetes is told: status sets Failed and Evicted as kubelet's own eviction does, evict asks the eviction API (disruption budgets are heard), delete deletes the pod; what the identity may not do is replaced by the next of these; without kubeconfig it is none",
			set: func(r *reader, c *Config) {
				if m := r.oneOf(string(ReportStatus), string(ReportEvict), string(ReportDelete), string(ReportNone)); m != "" {
					c.ReportMode = Report(m)
				}
			},
			fixed: func(c *Config) string { return string(c.ReportMode) }},
		{Key: "metricsBindAddress", Default: DefaultMetricsAddress, Unit: "host:port", Bounds: "\"\" or \"0\" for none", Doc: "where metrics, /healthz and /readyz are served",
			set:   func(r *reader, c *Config) { r.hostPort(&c.MetricsBindAddress) },
			fixed: func(c *Config) string { return c.MetricsBindAddress }},

		{Key: "podLogsDir", Default: "/var/log/pods", Unit: "path", Bounds: "absolute", Doc: "the pods' logs; on a file system of their own they count as nodefs",
			set:   func(r *reader, c *Config) { r.path(&c.PodLogsDir) },
			fixed: func(c *Config) string { return c.PodLogsDir }},
	}, imageGCFields()...)
}

// defaultTransition is kubelet's evictionPressureTransitionPeriod.
const defaultTransition = 5 * time.Minute

// softOf reads a soft threshold: auto is the default of the hard one only.
func softOf(text string) (eviction.Threshold, error) {
	t, err := eviction.ParseThreshold(text)
	if err == nil && t.Auto {
		return t, errors.New("auto is for evictionHard only; write a quantity such as 1Gi or a percentage such as 10%")
	}
	return t, err
}

func thresholdOf(text string) (eviction.Threshold, error) { return eviction.ParseThreshold(text) }

// reclaimOf reads a minimum reclaim: like a threshold, but 0 is allowed.
func reclaimOf(text string) (eviction.Threshold, error) {
	if text == "auto" {
		return eviction.Threshold{}, fmt.Errorf("must be a quantity such as 200Mi or a percentage")
	}
	if isZeroQuantity(text) {
		return eviction.Threshold{Text: text}, nil
	}
	t, err := eviction.ParseThreshold(text)
	if errors.Is(err, eviction.ErrNotPositive) {
		return t, errors.New("must be 0 or more")
	}
	if err == nil && t.Off {
		return t, fmt.Errorf("a percentage here lies above 0%% and below 100%%; leave the signal out for no minimum")
	}
	return t, err
}

func isZeroQuantity(text string) bool {
	q, err := resource.ParseQuantity(text)
	return err == nil && q.IsZero()
}
