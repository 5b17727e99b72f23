// Command benchproxy measures what the proxy costs: the same calls, in one run
// and in turns, straight to a runtime that answers from memory, through a plain
// byte relay, through the barest forwarder that can be made of grpc-go, through
// this proxy (the built binary) and through a proxy that decodes and encodes each
// message. Each of them is a process of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/cri-evictd", "the cri-evictd to measure")
	flag.StringVar(&o.other, "other", "", "measure this cri-evictd as well, as \"other\"; a command: \"env GOGC=50 bin/cri-evictd\"")
	flag.StringVar(&o.without, "without", "", "leave these ways out, comma separated: direct, bare, typed")
	flag.BoolVar(&o.quick, "quick", false, "a smoke run of some seconds: its figures say little")
	flag.DurationVar(&o.total, "for", 18*time.Second, "time for each kind of call, all ways together")
	flag.DurationVar(&o.slot, "slice", 60*time.Millisecond, "time of one way's turn")
	flag.StringVar(&o.only, "only", "", "measure only calls whose name contains this, and no memory")
	flag.BoolVar(&o.memory, "memory", false, "measure memory only")
	flag.DurationVar(&o.idle, "idle", 0, "instead: replay the calls of an idle kubelet for so long")
	flag.StringVar(&o.role, "role", "", "internal: be one of the processes")
	flag.StringVar(&o.listen, "listen", "", "internal")
	flag.StringVar(&o.upstream, "upstream", "", "internal")
	flag.StringVar(&o.holds, "holds", "", "internal")
	flag.Parse()
	var err error
	if o.role != "" {
		err = o.play()
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		err = o.bench(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchproxy:", err)
		os.Exit(1)
	}
}

type options struct {
	binary, other, without        string
	quick                         bool
	total, slot, idle             time.Duration
	only                          string
	memory                        bool
	role, listen, upstream, holds string
}

// play is one of the processes of the set-up.
func (o options) play() error {
	go tellAllocations()
	switch o.role {
	case "backend":
		return runBackend(o.listen)
	case "relay":
		return runRelay(o.listen, o.upstream)
	case "bare":
		return runBare(o.listen, o.upstream)
	case "typed":
		return runTyped(o.listen, o.upstream)
	case "counted":
		return runProxyCounted(o.listen, o.upstream, o.holds)
	}
	return fmt.Errorf("role %q", o.role)
}

func (o options) bench(ctx context.Context, w io.Writer) error {
	if o.quick {
		o.total, o.slot = 300*time.Millisecond, 10*time.Millisecond
	}
	dir, err := os.MkdirTemp("", "bp")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := o.setUp(ctx, dir)
	defer s.stop()
	if err != nil {
		return err
	}
	s.leaveOut(strings.Split(o.without, ","))
	fmt.Fprintf(w, "%s, %d CPUs, %s, load %s\n", time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), runtime.Version(), loadAverage())
	if o.idle > 0 {
		return measureIdle(ctx, w, s.variants, o.idle)
	}
	if o.memory {
		return measureMemory(ctx, w, s.variants, 2*time.Second)
	}
	reportHeader(w)
	for _, sc := range scenarios() {
		if !strings.Contains(sc.name+" "+sc.client, o.only) {
			continue
		}
		results, err := compare(ctx, s.variants, sc, o.slot, o.total)
		if err != nil {
			return err
		}
		report(w, sc, s.variants, results)
	}
	if o.only != "" {
		return nil
	}
	calls, load := 300, 2*time.Second
	if o.quick {
		calls, load = 10, 200*time.Millisecond
	}
	if err := measureAllocations(ctx, w, s.counted, calls); err != nil {
		return fmt.Errorf("allocations: %w", err)
	}
	if err := s.restart(ctx); err != nil {
		return err
	}
	if err := measureMemory(ctx, w, s.variants, load); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	fmt.Fprintf(w, "\nload at the end %s\n", loadAverage())
	return nil
}

// loadAverage is the machine's, to be printed beside the figures.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// setup is all processes of a run.
type setup struct {
	o        options
	dir      string
	log      *os.File
	backend  *process
	variants []*variant // what is timed
	counted  []*variant // what allocations are counted of
}

func (o options) setUp(ctx context.Context, dir string) (*setup, error) {
	s := &setup{o: o, dir: dir}
	var err error
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return s, err
	}
	if err := writeHolds(filepath.Join(dir, "run")); err != nil {
		return s, fmt.Errorf("holds: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	backend := filepath.Join(dir, "backend")
	if s.backend, err = start(ctx, s.log, backend, self, "-role", "backend", "-listen", backend); err != nil {
		return s, err
	}
	s.variants = []*variant{{name: "direct", socket: backend}}
	if err := s.startMiddle(ctx, self); err != nil {
		return s, err
	}
	counted, err := s.startRole(ctx, self, "counted")
	if err != nil {
		return s, err
	}
	s.counted = []*variant{counted}
	for _, v := range s.variants {
		if v.name != "direct" && v.name != "proxy" && v.name != "other" {
			s.counted = append(s.counted, v)
		}
	}
	return s, nil
}

// startMiddle starts what is measured.
func (s *setup) startMiddle(ctx context.Context, self string) error {
	for _, role := range []string{"relay", "bare", "typed"} {
		v, err := s.startRole(ctx, self, role)
		if err != nil {
			return err
		}
		s.variants = append(s.variants, v)
	}
	ours := map[string][]string{"proxy": {s.o.binary, "proxy"}}
	if s.o.other != "" {
		ours["other"] = append(strings.Fields(s.o.other), "proxy")
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		v, err := s.startDaemon(ctx, name, ours[name])
		if err != nil {
			return err
		}
		s.variants = append(s.variants, v)
	}
	return nil
}

// startDaemon starts a cri-evictd with a holds directory.
func (s *setup) startDaemon(ctx context.Context, name string, command []string) (*variant, error) {
	socket := filepath.Join(s.dir, name)
	config := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: cri-evictd.io/v1alpha1
kind: EvictionConfiguration
listen: unix://%s
runtimeEndpoint: unix://%s
runDir: %s
proxySocket: %s
stateDir: %s
`, socket, filepath.Join(s.dir, "backend"), filepath.Join(s.dir, "run"), socket+".events", s.dir), 0o600); err != nil {
		return nil, err
	}
	p, err := start(ctx, s.log, socket, append(command, "--config", config, "--log-level", "warn")...)
	if err != nil {
		return nil, err
	}
	return &variant{name: name, socket: socket, middle: p}, nil
}

func (s *setup) startRole(ctx context.Context, self, role string) (*variant, error) {
	socket := filepath.Join(s.dir, role)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	p, err := start(ctx, s.log, socket, self, "-role", role, "-listen", socket,
		"-upstream", filepath.Join(s.dir, "backend"), "-holds", filepath.Join(s.dir, "run"))
	if err != nil {
		return nil, err
	}
	return &variant{name: role, socket: socket, middle: p}, nil
}

// leaveOut takes ways out of what is timed.
func (s *setup) leaveOut(names []string) {
	s.variants = slices.DeleteFunc(s.variants, func(v *variant) bool {
		out := slices.Contains(names, v.name) && v.name != "relay"
		if out && v.middle != nil {
			v.middle.stop()
		}
		return out
	})
}

// restart gives the memory test processes without a past.
func (s *setup) restart(ctx context.Context) error {
	for _, v := range append(s.variants, s.counted...) {
		v.disconnect(0)
		if v.middle != nil {
			v.middle.stop()
		}
	}
	s.variants = slices.DeleteFunc(s.variants, func(v *variant) bool { return v.middle != nil })
	s.counted = nil
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return s.startMiddle(ctx, self)
}

func (s *setup) stop() {
	for _, v := range append(s.variants, s.counted...) {
		v.disconnect(0)
		if v.middle != nil {
			v.middle.stop()
		}
	}
	if s.backend != nil {
		s.backend.stop()
	}
	if s.log != nil {
		_ = s.log.Close()
	}
}

// writeHolds leaves a holds file as after a few evictions: none of the pods
// that are asked for.
func writeHolds(dir string) error {
	w, err := holds.OpenWriter(dir)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	for i := range 10 {
		state := holds.Released
		if i < 3 {
			state = holds.Killed
		}
		err := w.Put(holds.Record{
			ID: w.NextID(), State: state, UID: podUID(1<<20 + i), Namespace: "namespace", Name: "evicted", Signal: "memory.available",
			SandboxID: hexID("e", i), Decided: time.Now().UTC(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}
