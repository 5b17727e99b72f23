package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/internal/lab/labtest"
)

// stage is a node with everything real: kubelet on the proxy's socket, the evictor
// beside it, containerd behind it, an API server unless kubelet stands alone.
type stage struct {
	t       *testing.T // of the moment, see in
	made    *[]*v1.Pod // pods to delete at its end; nil: they go with the stage
	dir     string
	ctd     *lab.Containerd
	plane   *lab.ControlPlane // nil: kubelet stands alone
	kubelet *lab.Kubelet
	proxy   *half
	evict   *half
	direct  runtimeapi.RuntimeServiceClient
	pods    *recorder // nil: kubelet stands alone
	beside  []*v1.Pod // who does nothing wrong, all the time
	// kubeletSince is when kubelet was started.
	kubeletSince *time.Time
}

// stageOptions say how a stage differs from the usual one.
type stageOptions struct {
	alone   bool                               // without an API server
	kubelet map[string]any                     // fields of KubeletConfiguration
	prepare func(t *testing.T, scratch string) // before anything is started
}

// newStage starts everything but the evictor. All of it goes at the end of the
// test, and nothing may be left.
func newStage(t *testing.T, opt stageOptions) *stage {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a real kubelet with real containers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // a cold cache builds everything
	defer cancel()
	dir := labtest.Scratch(t)
	if opt.prepare != nil {
		opt.prepare(t, dir)
	}
	s := &stage{t: t, dir: dir, kubeletSince: new(time.Time)}
	s.startRuntime(ctx)
	kubeconfig := ""
	if !opt.alone {
		kubeconfig = s.startPlane(ctx)
	}
	bin := binary.make(t)
	s.proxy = &half{name: "proxy", binary: bin, config: filepath.Join(dir, "proxy.yaml"), logFile: filepath.Join(dir, "proxy.log")}
	s.evict = &half{name: "evict", binary: bin, config: filepath.Join(dir, "evict.yaml"), logFile: filepath.Join(dir, "evict.log")}
	t.Cleanup(s.stopHalves)
	s.writeConfig(s.proxy, policy{})
	s.startProxy()
	kubeletBinary, err := lab.EnsureKubelet(ctx, testWriter{t}, lab.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	s.kubelet, err = lab.StartKubelet(ctx, lab.KubeletOptions{
		Binary: kubeletBinary, Dir: dir, Runtime: s.socket(), Node: nodeName, Kubeconfig: kubeconfig, Config: opt.kubelet, Log: testWriter{t},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.kubelet.Stop(); err != nil {
			t.Error(err)
		}
		s.keepLogs()
		if t.Failed() {
			t.Logf("the evictor's log ends with\n%s", s.evict.tail())
			t.Logf("the proxy's log ends with\n%s", s.proxy.tail())
			t.Logf("kubelet's log ends with\n%s", s.kubeletTail())
		}
	})
	return s
}

// keepLogs copies the logs to the folder CRI_EVICTD_LOGS, if it is set.
func (s *stage) keepLogs() {
	dir := os.Getenv("CRI_EVICTD_LOGS")
	if dir == "" {
		return
	}
	for _, path := range []string{s.kubelet.LogFile, s.ctd.LogFile, s.evict.logFile, s.proxy.logFile} {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, s.t.Name()+"-"+filepath.Base(path)), b, 0o644)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Log(err)
		}
	}
}

// in is the stage for a subtest, whose pods go with it.
func (s *stage) in(t *testing.T) *stage {
	c := *s
	c.t, c.made = t, &[]*v1.Pod{}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, pod := range *c.made {
			wg.Go(func() { c.remove(pod) })
		}
		wg.Wait()
	})
	return &c
}

// run makes a subtest of a scenario.
func (s *stage) run(name string, scenario func(*stage)) bool {
	return s.t.Run(name, func(t *testing.T) { scenario(s.in(t)) })
}

func (s *stage) socket() string      { return filepath.Join(s.dir, "cri.sock") }
func (s *stage) adminSocket() string { return filepath.Join(s.dir, "admin.sock") }

func (s *stage) startRuntime(ctx context.Context) {
	s.t.Helper()
	tools, err := lab.EnsureRuntime(ctx, testWriter{s.t}, lab.Current)
	if err != nil {
		s.t.Fatal(err)
	}
	// A network that nobody uses: without one the runtime says that there is none,
	// and the node is never Ready.
	nets, registries := filepath.Join(s.dir, "net.d"), filepath.Join(s.dir, "registries")
	conf := `{"cniVersion": "0.4.0", "name": "nobody", "plugins": [{"type": "nobody"}]}`
	for _, err := range []error{
		os.Mkdir(nets, 0o755), os.Mkdir(registries, 0o755), os.WriteFile(filepath.Join(nets, "10-nobody.conflist"), []byte(conf), 0o644),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.ctd = labtest.Containerd(ctx, s.t, lab.ContainerdOptions{
		Tools: tools, Version: lab.Current, Dir: s.dir, Log: testWriter{s.t},
		CRI: &lab.CRIOptions{CNIPlugins: registries, CNIConfig: nets, Registries: registries},
	})
	s.direct = runtimeapi.NewRuntimeServiceClient(s.dial(s.ctd.Socket))
}

// startPlane starts the API server and a recorder of its pods, and returns the
// kubeconfig of the node.
func (s *stage) startPlane(ctx context.Context) string {
	s.t.Helper()
	tools, err := lab.EnsureKubernetes(ctx, testWriter{s.t}, lab.Kubernetes)
	if err != nil {
		s.t.Fatal(err)
	}
	s.plane, err = lab.StartControlPlane(ctx, lab.ControlPlaneOptions{Tools: tools, Dir: s.dir, Nodes: []string{nodeName}, Log: testWriter{s.t}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := s.plane.Stop(); err != nil {
			s.t.Error(err)
		}
	})
	admin, err := s.plane.AdminKubeconfig()
	if err != nil {
		s.t.Fatal(err)
	}
	s.pods = record(s.t, admin)
	return s.nodeKubeconfig()
}

func (s *stage) nodeKubeconfig() string {
	s.t.Helper()
	path, err := s.plane.NodeKubeconfig(nodeName)
	if err != nil {
		s.t.Fatal(err)
	}
	return path
}

func (s *stage) dial(socket string) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// startProxy returns when the runtime answers through it. Like restartKubelet it may
// be called from a cleanup, when the test's context has ended.
func (s *stage) startProxy() {
	s.t.Helper()
	if err := s.proxy.start(); err != nil {
		s.t.Fatal(err)
	}
	rt := runtimeapi.NewRuntimeServiceClient(s.dial(s.socket()))
	eventually(s.t, "the runtime answers through the proxy", time.Minute, func() error {
		ctx, cancel := patience()
		defer cancel()
		_, err := rt.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
}

func (s *stage) stopHalves() {
	if err := errors.Join(s.evict.stop(), s.proxy.stop()); err != nil {
		s.t.Error(err)
	}
	for _, h := range []*half{s.evict, s.proxy} {
		if err := h.faults(); err != nil && !errors.Is(err, os.ErrNotExist) {
			s.t.Error(err)
		}
	}
}

// restartKubelet starts it again with other fields.
func (s *stage) restartKubelet(fields map[string]any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, err := range []error{s.kubelet.Stop(), s.kubelet.Reconfigure(fields), s.startKubelet(ctx)} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// startKubelet starts it again after its end.
func (s *stage) startKubelet(ctx context.Context) error {
	*s.kubeletSince = time.Now()
	return s.kubelet.Start(ctx)
}

// client asks the evictor.
func (s *stage) client() *admin.Client {
	return admin.NewClient(cri.Endpoint{Path: s.adminSocket()})
}

func (s *stage) kubeletTail() string {
	b, err := os.ReadFile(s.kubelet.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}

// policy is what differs from one evictor to the next.
type policy struct {
	hard     uint64 // threshold of memory.available in bytes; 0: off
	pods     uint64 // threshold of allocatableMemory.available; 0: off
	untold   bool   // without a kubeconfig
	noProxy  bool   // kubelet talks to the runtime directly
	disk     string // more lines of evictionHard, indented by two
	settings string // more lines
	// transition is how long the pressure must be over before a hold ends; 0: 1 s.
	transition time.Duration
}

// writeConfig writes the configuration of one half.
func (s *stage) writeConfig(h *half, p policy) {
	s.t.Helper()
	disk := p.disk
	if disk == "" {
		disk = "  nodefs.available: \"0%\"\n  nodefs.inodesFree: \"0%\"\n"
	}
	text := lab.ConfigAt(s.dir, filepath.Join(s.dir, "state"), filepath.Join(s.dir, "kl", "root"), s.ctd.Socket, fmt.Sprintf(`nodeName: %s
killBudget: 1000
evictionPressureTransitionPeriod: %s
evictionHard:
  memory.available: %s
  allocatableMemory.available: %s
  imagefs.available: "0%%"
  imagefs.inodesFree: "0%%"
%s%s`, nodeName, cmp.Or(p.transition, time.Second), amountOrOff(p.hard), amountOrOff(p.pods), disk, p.settings))
	if s.plane != nil && !p.untold {
		text += "kubeconfig: " + s.nodeKubeconfig() + "\n"
	}
	if err := os.WriteFile(h.config, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func amountOrOff(n uint64) string {
	if n == 0 {
		return `"0%"`
	}
	return fmt.Sprintf("%q", quantity(n))
}

// evictor starts the evictor anew with this policy, and returns when it would act.
func (s *stage) evictor(p policy) {
	s.t.Helper()
	if err := s.evict.stop(); err != nil {
		s.t.Fatal(err)
	}
	s.writeConfig(s.evict, p)
	if err := s.evict.start(); err != nil {
		s.t.Fatal(err)
	}
	s.awaitEvictor(p)
}

func (s *stage) awaitEvictor(p policy) {
	s.t.Helper()
	eventually(s.t, "the evictor is ready", time.Minute, func() error {
		st, err := s.client().Status(s.t.Context())
		switch {
		case err != nil:
			return err
		case !st.Engine.Inventory.Listed:
			return errors.New("the runtime was not listed yet")
		case p.hard+p.pods > 0 && (st.Engine.Memory.Samples == 0 || st.Engine.Unarmed):
			return fmt.Errorf("%d samples, unarmed %t", st.Engine.Memory.Samples, st.Engine.Unarmed)
		case !p.noProxy && !st.Proxy.Reachable:
			return errors.New(st.Proxy.Error)
		case s.plane != nil && !p.untold && (st.Engine.Telling == nil || st.Engine.Telling.Way != "status"):
			return fmt.Errorf("telling: %+v", st.Engine.Telling)
		}
		return nil
	})
}
