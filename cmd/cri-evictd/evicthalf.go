package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/eviction/diskusage"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/unixsock"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/proxy"
	"github.com/cri-evictd/cri-evictd/systemd"
)

// closers undo what was opened, last first.
type closers []func() error

func (c closers) close(log logrus.FieldLogger) {
	for i := len(c) - 1; i >= 0; i-- {
		if err := c[i](); err != nil {
			log.WithError(err).Warn("closing")
		}
	}
}

// runEvict runs the evictor until ctx ends.
func (a *app) runEvict(ctx context.Context, lv *live, log logrus.FieldLogger, ready func()) error {
	log = log.WithField("part", "evict")
	cfg := lv.config()
	var open closers
	defer func() { open.close(log) }()

	m, err := a.machine()
	if err != nil {
		return err
	}
	open = append(open, m.close)
	r := resolve(cfg, m)

	if err := a.process.before.Say(systemd.WordPrepared); err != nil {
		return err
	}
	writer, err := openHolds(ctx, cfg.RunDir, a.process.before)
	if err != nil {
		return fmt.Errorf("holds file: %w", err)
	}
	open = append(open, writer.Close)
	for _, problem := range writer.Problems() {
		log.WithError(problem).Error("part of the holds file could not be used: those pods are not held")
	}

	rest, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()

	ledger, ledgerErr := inTime(ledgerPatience, func() (*holds.Ledger, error) { return openLedger(cfg, writer, log) })
	if ledgerErr != nil {
		log.WithError(ledgerErr).Error("no ledger: kills and holds go on, history and back-offs are not kept over a restart")
	} else {
		open = append(open, ledger.Close)
	}

	client, err := cri.Dial(cfg.RuntimeEndpoint)
	if err != nil {
		return fmt.Errorf("runtimeEndpoint: %w", err)
	}
	open = append(open, client.Close)

	cgroups := eviction.RealCgroups{FS: m.fs, KubeletRoot: cfg.KubeletRootDir}
	facts := newPodFacts(cfg, log)
	store := inventory.NewStore(inventory.Options{MemTotal: m.info.MemTotal, TrustedNamespaces: cfg.TrustedNamespaces, Facts: facts.store})
	syncer := inventory.NewSyncer(store, inventory.CRIRuntime{Lister: client}, cgroups, time.Now, log)
	parts := eviction.Parts{
		Store: store, Syncer: syncer, Holds: writer, Runtime: client, Cgroups: cgroups, Thaw: m.fs.ThawPath,
		Meminfo: m.meminfo, MinFree: m.minFree, BootID: m.bootID, Clock: time.Now, Log: log,
		OpenPods: cgroups.OpenPods, TopLevel: cgroups.TopLevel,
		Terminating: facts.store.Ending, Gone: facts.store.Gone, FactSources: facts.sources,
		Hooks: client, Wakeups: eviction.RealKernelEvents{FS: m.fs}, BetweenIntentAndKill: a.between,
	}
	usage := newPodUsage(diskusage.Places{
		KubeletRoot: cfg.KubeletRootDir, LogsDir: cfg.PodLogsDir, Proc: a.roots.Proc, ProjectsFile: "/etc/projects",
	}, m.fs, store, client, log)
	parts.Slow = m.slowParts(cfg, client)
	parts.Slow.Usage = usage
	garbage := &gcParts{lv: lv, m: m, client: client, store: store, facts: facts, writer: writer, usage: usage.PodUsage}
	collector, uses := newGC(garbage, log)
	parts.Slow.Reclaim = collector
	if m.vmstat != nil {
		parts.Scan = m.vmstat
	}
	if m.root != nil {
		parts.RootMemory = m.root
	}
	if m.rootCheck != nil {
		parts.RootCheck = m.rootCheck
	}
	parts.LedgerProblem = ledgerErr
	parts.Armed = armedFile{path: filepath.Join(cfg.RunDir, "armed")}
	if ledger != nil {
		parts.Ledger = ledger
		parts.Copier = holds.NewCopier(writer, ledger, log)
	}
	teller := newTeller(cfg, ledger, m.bootID, log)
	if teller != nil {
		parts.Teller = teller
	}
	seen := &proxySeen{clock: time.Now}
	parts.Enforced = seen.enforces
	engine, err := eviction.New(r.set, parts)
	if err != nil {
		return err
	}
	garbage.acts = engine.Acting
	var podsLimit atomic.Uint64
	detach, err := lv.attach(func(cfg config.Config) error {
		r := resolve(cfg, m)
		if err := engine.Reload(r.set); err != nil {
			return err
		}
		facts.trust(cfg.TrustedNamespaces)
		podsLimit.Store(r.podsLimit)
		r.announce(log, m)
		return nil
	})
	if err != nil {
		return err
	}
	open = append(open, func() error { detach(); return nil })
	asked := func(ctx context.Context) admin.ProxyStatus {
		st := askProxy(ctx, cfg.ProxySocket.Path)
		st.Bypassed = exists(filepath.Join(cfg.RunDir, bypassedFile))
		return st
	}
	metrics := admin.NewMetricsServer(admin.MetricsOptions{
		Address: cfg.MetricsBindAddress, Version: version(), Engine: engine, Proxy: asked, GC: collector.Counts, Clock: time.Now, Log: log,
	})
	server := admin.NewServer(admin.Options{
		Version: version(), PID: os.Getpid(), Engine: engine, Proxy: asked, Metrics: metrics.Status, Config: lv.status, PodFacts: facts.pod, GC: collector.Plan, Removals: collector.Runs, Upgrade: a.process.over, Clock: time.Now, Log: log,
	})
	sock, err := unixsock.Listen(cfg.AdminSocket.Path, unixsock.Owner{}, log)
	if err != nil {
		return fmt.Errorf("adminSocket: %w", err)
	}
	var admins atomic.Pointer[unixsock.Socket]
	admins.Store(sock)
	open = append(open, func() error { admins.Load().Remove(); return nil })
	serveAdmin := func(s *unixsock.Socket) {
		wg.Go(func() {
			if err := server.Serve(rest, s); err != nil {
				log.WithError(err).Error("the admin service ended")
			}
		})
	}
	serveAdmin(sock)
	wg.Go(func() {
		unixsock.Keep(rest, sock, unixsock.Owner{}, "the admin socket", log, func(again *unixsock.Socket) {
			admins.Store(again)
			serveAdmin(again)
		})
	})
	wg.Go(func() {
		m.followLimit(rest, podsLimit.Load, func() {
			if err := lv.again(); err != nil {
				log.WithError(err).Error("the pods' limit changed and thresholds in percent of it could not follow")
			}
		})
	})
	wg.Go(func() { metrics.Run(rest) })
	if teller != nil {
		wg.Go(func() { teller.Run(rest) })
	}
	wg.Go(func() { usage.run(rest, engine.Alarm, log) })
	wg.Go(func() { collector.Run(rest) })
	facts.run(rest, &wg, syncer)
	wg.Go(func() { followProxy(rest, cfg.ProxySocket.Path, seen, syncer, engine.NotAdmitted, uses, log) })
	wg.Go(func() {
		for range client.Ready(rest) {
			syncer.MarkDirty()
		}
	})
	defer a.process.watchdog.Watch("sampler", systemd.Progress(engine.Ticks))()
	ready()
	return engine.Run(ctx)
}

const (
	// holdsRetry is how often a successor asks for the holds file.
	holdsRetry = 20 * time.Millisecond
	// ledgerPatience is how long a disk may take to give the ledger.
	ledgerPatience = 10 * time.Second
)

// openHolds opens the holds file. A successor waits for it as long as the process
// before it lives.
func openHolds(ctx context.Context, dir string, before *systemd.Predecessor) (*holds.Writer, error) {
	tick := time.NewTicker(holdsRetry)
	defer tick.Stop()
	for last := false; ; {
		w, err := holds.OpenWriter(dir)
		if last || !errors.Is(err, holds.ErrLocked) {
			return w, err
		}
		select {
		case <-tick.C:
		case <-before.Gone():
			last = true
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// errTooSlow says that something was not there in time.
var errTooSlow = errors.New("it does not answer")

// inTime returns what open does, or an error after limit: a disk that hangs must
// not keep the evictor from its work. What comes later is closed.
func inTime[T interface{ Close() error }](limit time.Duration, open func() (T, error)) (T, error) {
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := open()
		done <- outcome{v, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.v, o.err
	case <-timer.C:
	}
	go func() {
		if o := <-done; o.err == nil {
			_ = o.v.Close() // nothing was written to it
		}
	}()
	var none T
	return none, fmt.Errorf("%w for %s", errTooSlow, limit)
}

// openLedger opens the ledger.
func openLedger(cfg config.Config, w *holds.Writer, log logrus.FieldLogger) (*holds.Ledger, error) {
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("stateDir: %w", err)
	}
	ledger, err := holds.OpenLedger(filepath.Join(cfg.StateDir, "ledger.db"), log)
	if err != nil {
		return nil, err
	}
	if why := ledger.Recovered(); why != nil {
		log.WithError(why).Error("the ledger was corrupt; it was put aside and a new one begun: history and back-offs start anew, holds are not affected")
	}
	if last, err := ledger.LastID(); err == nil {
		if err := w.AdvanceID(last); err != nil {
			log.WithError(err).Warn("decision numbers may repeat those of the ledger")
		}
	}
	return ledger, nil
}

// machine is what the evictor reads of the node.
type machine struct {
	fs      *cgroupfs.FS
	meminfo *cgroupfs.MeminfoReader
	vmstat  *cgroupfs.VMStatReader
	// root is the fast half's, rootCheck the slow one's: a reader is for one
	// goroutine.
	root, rootCheck *cgroupfs.RootMemory

	info    cgroupfs.Meminfo
	minFree uint64
	bootID  string
	notes   []string // what is absent, one line each
}

// machine opens procfs and the cgroup hierarchy.
func (a *app) machine() (*machine, error) {
	fs, err := cgroupfs.Open(a.roots)
	if err != nil {
		return nil, fmt.Errorf("cgroup hierarchy: %w", err)
	}
	m := &machine{fs: fs}
	if m.meminfo, err = fs.OpenMeminfo(); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	if err := m.meminfo.Read(&m.info); err != nil {
		return nil, errors.Join(fmt.Errorf("memory: %w", err), m.close())
	}
	if m.vmstat, err = fs.OpenVMStat(); err != nil {
		m.vmstat = nil
		m.notes = append(m.notes, fmt.Sprintf("direct reclaim cannot be seen, both memory readings have to agree: %v", err))
	}
	if m.root, err = fs.OpenRootMemory(); err != nil {
		m.root = nil
		m.notes = append(m.notes, fmt.Sprintf("kubelet's own sources cannot be read, its reading is computed from /proc/meminfo: %v", err))
	} else if m.rootCheck, err = fs.OpenRootMemory(); err != nil {
		m.rootCheck = nil // it was there a moment ago, and is only for comparing
	}
	if m.minFree, err = fs.MinFreeBytes(); err != nil {
		m.notes = append(m.notes, fmt.Sprintf("min_free_kbytes is unknown and taken as 0: %v", err))
	}
	if m.bootID, err = fs.BootID(); err != nil {
		m.notes = append(m.notes, fmt.Sprintf("the boot cannot be told from the previous one, the ledger's holds are not restored: %v", err))
	}
	return m, nil
}

func (m *machine) close() error {
	var errs []error
	if m.meminfo != nil {
		errs = append(errs, m.meminfo.Close())
	}
	if m.vmstat != nil {
		errs = append(errs, m.vmstat.Close())
	}
	for _, r := range []*cgroupfs.RootMemory{m.root, m.rootCheck} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}

// askProxy gets the proxy's status.
func askProxy(ctx context.Context, socket string) admin.ProxyStatus {
	st, err := proxy.FetchStatus(ctx, socket)
	if err != nil {
		return admin.ProxyStatus{Error: err.Error()}
	}
	out := admin.ProxyStatus{
		Reachable: true, Listen: st.Listen, Upstream: st.Upstream.Endpoint, UpstreamState: st.Upstream.State,
		UpstreamError: cmp.Or(st.Upstream.DialError, st.Upstream.Problem), Runtime: st.Upstream.Runtime,
		NotAdmitted: map[string]uint64{
			proxy.MemoryPressure: st.Admission.MemoryPressure, proxy.DiskPressure: st.Admission.DiskPressure, proxy.PIDPressure: st.Admission.PIDPressure,
		},
		Undecided: st.Admission.Undecided, InFlight: st.InFlight, HeldMeanwhile: st.HeldMeanwhile, Undecodable: st.Undecodable,
		Refused: st.Refused, Decorated: st.Decorated, Panics: st.Panics, EventsDropped: st.EventsDropped, HoldsProblem: st.HoldsProblem,
	}
	for _, c := range st.Calls {
		out.Calls += c.Count
		out.Methods = append(out.Methods, admin.MethodCount(c))
	}
	return out
}
