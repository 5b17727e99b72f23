package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// proxyGCPercent is GOGC of a process that only forwards.
const proxyGCPercent = 30

// prepareProxyProcess fits the Go runtime to a process that only forwards. On
// one P nothing has to wake a thread for the next step of a call: a call takes
// less time and less CPU, and one CPU moves more than kubelet asks for
// (docs/performance.md). The collector runs early, because under load most of
// the heap is frames in flight and garbage would grow in proportion to them.
func prepareProxyProcess() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(proxyGCPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// runProxy runs the proxy until ctx ends. Without policy nothing is held and
// every new pod is admitted.
func (a *app) runProxy(ctx context.Context, lv *live, policy bool, log logrus.FieldLogger, ready func()) error {
	cfg := lv.config()
	opt := proxy.Options{
		Listen: cfg.Listen, Upstream: cfg.RuntimeEndpoint, EventsSocket: cfg.ProxySocket.Path,
		DecorateStatus: cfg.DecorateStatus, Log: log.WithField("part", "proxy"),
		Sockets: a.process.proxySockets(), AfterUpstream: a.process.successor(), Upgrade: a.process.over,
	}
	if a.process.successor() {
		opt.Predecessor = a.process.before.Gone()
	}
	if policy {
		reader := holds.OpenReader(cfg.RunDir)
		defer func() { _ = reader.Close() }() // read only; nothing can be lost
		opt.Holds = expiringHolds{Reader: reader, maximum: func() time.Duration { return lv.config().HoldMaximum }, now: time.Now}
		opt.Admission = admissionPolicy(lv, reader, askFacts(cfg.AdminSocket, opt.Log))
	}
	p, err := proxy.New(opt)
	if err != nil {
		return err
	}
	detach, err := lv.attach(func(cfg config.Config) error {
		p.SetDecorateStatus(cfg.DecorateStatus)
		return nil
	})
	if err != nil {
		return err
	}
	defer detach()
	a.process.over.proxy.Store(p)
	defer a.process.watchdog.Watch("proxy", func(ctx context.Context) error {
		select {
		case <-p.Serving():
			return p.Ping(ctx)
		default:
			return nil // it is not the service yet
		}
	})()
	go func() {
		select {
		case <-p.Serving():
			ready()
			a.noteRuntime(cfg, opt.Log)
		case <-ctx.Done():
		}
	}()
	return p.Run(ctx)
}

// runtimeFile tells cri-evictd-bypass.service where the runtime is.
const runtimeFile = "runtime.env"

// noteRuntime keeps that file up to date. The bypass has a default without it.
func (a *app) noteRuntime(cfg config.Config, log logrus.FieldLogger) {
	if a.trialSocket != "" || strings.ContainsFunc(cfg.RuntimeEndpoint.Path, func(r rune) bool {
		return !strings.ContainsRune("/._-", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return // nobody's quoting is relied on
	}
	path, text := filepath.Join(cfg.RunDir, runtimeFile), "CRI_EVICTD_RUNTIME_SOCKET="+cfg.RuntimeEndpoint.Path+"\n"
	if have, err := os.ReadFile(path); err == nil && string(have) == text {
		return
	}
	part := path + ".part"
	err := os.WriteFile(part, []byte(text), 0o600)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		log.WithError(err).Debug("the runtime's address could not be noted for the bypass")
	}
}

// admissionPolicy is what the proxy asks about new pods.
func admissionPolicy(lv *live, reader *holds.Reader, facts func(context.Context, string) proxy.PodFacts) *proxy.Admission {
	return &proxy.Admission{
		Conditions: reader.Conditions,
		BestEffort: bestEffort,
		Facts:      facts,
		Protected: func(namespace string, labels map[string]string) bool {
			cfg := lv.config()
			if slices.Contains(cfg.ProtectedNamespaces, namespace) {
				return true
			}
			if !slices.Contains(cfg.TrustedNamespaces, namespace) {
				return false
			}
			for k, v := range cfg.ProtectedPodLabels {
				if got, ok := labels[k]; ok && got == v {
					return true
				}
			}
			return false
		},
	}
}

// bestEffort says whether a cgroup parent is that of a pod that asked for
// nothing. What is no pod's own cgroup tells nothing.
func bestEffort(cgroupParent string) bool {
	path, err := cgroupfs.ResolveParent(cgroupParent)
	if err != nil {
		return false
	}
	pod, ok := cgroupfs.ParsePodPath(path)
	return ok && pod.QoS == cgroupfs.BestEffort
}

// expiringHolds ends holds after holdMaximum by itself: an evictor that is gone
// must not keep pods down for ever.
type expiringHolds struct {
	*holds.Reader
	maximum func() time.Duration
	now     func() time.Time
}

// Held implements proxy.Holds.
func (h expiringHolds) Held(uid string) (holds.Record, bool) { return h.valid(h.Reader.Held(uid)) }

// HeldSandbox implements proxy.Holds.
func (h expiringHolds) HeldSandbox(id string) (holds.Record, bool) {
	return h.valid(h.Reader.HeldSandbox(id))
}

func (h expiringHolds) valid(r holds.Record, ok bool) (holds.Record, bool) {
	if !ok || h.now().Sub(r.Decided) >= h.maximum() {
		return holds.Record{}, false
	}
	return r, true
}

// Problem is what is wrong with the file, its conditions included.
func (h expiringHolds) Problem() error {
	return errors.Join(h.Reader.Problem(), h.ConditionsProblem())
}
