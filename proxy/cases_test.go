package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// Cases of the collection of public incidents (bugs.md, sections G and H) as far
// as they concern the proxy; each test is named after its case.

// kubeletLimit is what kubelet accepts, in bytes.
const kubeletLimit = 16 << 20

// containerList is an answer of n exited containers of about size bytes each.
func containerList(t *testing.T, n, size int) []byte {
	t.Helper()
	c := &runtimeapi.Container{Id: strings.Repeat("0", 64), State: runtimeapi.ContainerState_CONTAINER_EXITED}
	c.Labels = map[string]string{"l": strings.Repeat("x", size-proto.Size(c)-12)}
	b, err := proto.Marshal(&runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{c}})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Repeat(b, n)
}

// asKubelet lists containers with kubelet's limit.
func asKubelet(ctx context.Context, conn *grpc.ClientConn) (int, error) {
	resp, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(ctx, &runtimeapi.ListContainersRequest{},
		grpc.MaxCallRecvMsgSize(kubeletLimit))
	return len(resp.GetContainers()), err
}

// 20,000 dead containers: kubelet sees what it would see without us, and our own
// client gets the list.
func TestCaseB79DeadContainersBreakEveryList(t *testing.T) {
	r := newRig(t, nil)
	big := containerList(t, 20_000, 908)
	if len(big) <= kubeletLimit {
		t.Fatalf("%d bytes do not break kubelet's limit", len(big))
	}
	r.runtime.Inject("ListContainers", fakecri.Fault{Raw: [][]byte{big}})
	_, direct := asKubelet(r.ctx(), r.direct)
	_, through := asKubelet(r.ctx(), r.through)
	if status.Code(direct) != codes.ResourceExhausted || through == nil || direct.Error() != through.Error() {
		t.Errorf("direct  %v\nthrough %v", direct, through)
	}
	own, err := cri.Dial(r.runtime.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	if list, err := own.ListContainers(r.ctx()); err != nil || len(list) != 20_000 {
		t.Errorf("our own list: %d, %v", len(list), err)
	}
}

func TestCaseB83DefaultMessageLimit(t *testing.T) {
	r := newRig(t, nil)
	for mib, want := range map[int]codes.Code{5: codes.OK, 17: codes.ResourceExhausted} {
		n := mib * 1024
		r.runtime.Heal("ListContainers")
		r.runtime.Inject("ListContainers", fakecri.Fault{Raw: [][]byte{containerList(t, n, 1024)}})
		dn, direct := asKubelet(r.ctx(), r.direct)
		pn, through := asKubelet(r.ctx(), r.through)
		if status.Code(through) != want || dn != pn || fmt.Sprint(direct) != fmt.Sprint(through) || want == codes.OK && pn != n {
			t.Errorf("%d MiB: direct %d %v, through %d %v", mib, dn, direct, pn, through)
		}
	}
	// The request's direction has no limit of kubelet's; ours is 64 MiB.
	r.runtime.Inject("CreateContainer", fakecri.Fault{Empty: true})
	req := containerList(t, 17*1024, 1024)
	if got := exchange(r.ctx(), r.through, "/runtime.v1.RuntimeService/CreateContainer", "", req); got.code != codes.OK {
		t.Errorf("request of 17 MiB: %v %s", got.code, got.text)
	}
}

// Which versions there are is between client and runtime.
func TestCaseB85VersionsPassAsTheyAre(t *testing.T) {
	for name, without := range map[string][]string{
		"runtime speaks v1 only":       nil, // the fake does
		"runtime speaks v1alpha2 only": {"runtime.v1.RuntimeService", "runtime.v1.ImageService"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{t: t, dir: shortDir(t)}
			var err error
			if r.runtime, err = fakecri.Start(fakecri.Options{Dir: r.dir, Without: without}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.runtime.Close)
			r.startProxy(nil)
			r.direct = r.dial(r.runtime.Endpoint())
			if without != nil {
				for _, m := range []string{"Version", "ListPodSandbox", "RunPodSandbox"} {
					r.runtime.Inject("/runtime.v1alpha2.RuntimeService/"+m, fakecri.Fault{Raw: [][]byte{payload(m)}})
				}
			}
			seen := map[codes.Code]bool{}
			for _, version := range []string{"v1", "v1alpha2"} {
				for _, m := range []string{"Version", "ListPodSandbox", "RunPodSandbox"} {
					full := "/runtime." + version + ".RuntimeService/" + m
					direct := exchange(r.ctx(), r.direct, full, "", payload("q"))
					through := exchange(r.ctx(), r.through, full, "", payload("q"))
					if !reflect.DeepEqual(direct, through) {
						t.Errorf("%s:\ndirect  %+v\nthrough %+v", full, direct, through)
					}
					seen[through.code] = true
				}
			}
			if !seen[codes.OK] || !seen[codes.Unimplemented] {
				t.Errorf("codes %v: the runtime speaks both or none", seen)
			}
			if without != nil {
				eventually(t, "the missing service is named", func() bool {
					return strings.Contains(r.proxy.Status().Upstream.Problem, "runtime.v1.RuntimeService")
				})
			}
		})
	}
}

func TestCaseB86StreamingURLsAreNotRewritten(t *testing.T) {
	r := newRig(t, nil)
	for method, url := range map[string]string{"Exec": "http://127.0.0.1:35417/exec/Abc", "Attach": "//[::1]:1/attach/x?y=%20", "PortForward": "127.0.0.1:9/pf"} {
		// The three answers have the URL in field 1.
		b, err := proto.Marshal(&runtimeapi.ExecResponse{Url: url})
		if err != nil {
			t.Fatal(err)
		}
		r.runtime.Inject(method, fakecri.Fault{Raw: [][]byte{b}})
		fastest := time.Hour
		for range 20 {
			begun := time.Now()
			got := exchange(r.ctx(), r.through, "/runtime.v1.RuntimeService/"+method, "", nil)
			fastest = min(fastest, time.Since(begun))
			if len(got.messages) != 1 || string(got.messages[0]) != string(b) {
				t.Fatalf("%s: %+v", method, got)
			}
		}
		// The token in it lives for a minute.
		if fastest > time.Second {
			t.Errorf("%s takes %v", method, fastest)
		}
	}
}

// kubelet must not be kept from its runtime by a list that fails.
func TestCaseB89ListFailsAtTheStart(t *testing.T) {
	r := newRig(t, nil)
	r.runtime.Inject("ListPodSandbox", fakecri.Fault{Times: 3, Err: status.Error(codes.Internal, "recovery failed")})
	for range 3 {
		_, err := r.cri().ListPodSandbox(r.ctx(), &runtimeapi.ListPodSandboxRequest{})
		if status.Code(err) != codes.Internal || status.Convert(err).Message() != "recovery failed" {
			t.Errorf("not passed as it is: %v", err)
		}
		if _, err := r.version(r.ctx()); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0)); err != nil {
		t.Error(err)
	}
}

// 100 lists hang in the runtime: nothing of ours makes other calls wait for
// them. (The case's 1 ms at p99 is measured by make bench-proxy.)
func TestCaseB90SlowLists(t *testing.T) {
	r := newRig(t, nil)
	release := make(chan struct{})
	r.runtime.Inject("ListPodSandbox", fakecri.Fault{Wait: release})
	var lists sync.WaitGroup
	for range 100 {
		lists.Go(func() {
			if _, err := r.cri().ListPodSandbox(r.ctx(), &runtimeapi.ListPodSandboxRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	r.inFlight("ListPodSandbox", 100)
	var took []time.Duration
	for range 1000 {
		begun := time.Now()
		if _, err := r.version(r.ctx()); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	t.Logf("Version beside 100 hanging lists: p50 %v, p99 %v", took[500], took[990])
	if took[990] > 5*time.Second {
		t.Errorf("p99 %v", took[990])
	}
	close(release)
	lists.Wait()
}

func TestCaseB91PathFormsAndMissingDirectory(t *testing.T) {
	dir := shortDir(t)
	runtime, err := fakecri.Start(fakecri.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Close)
	for i, form := range []string{"unix://", "unix:", ""} {
		missing := filepath.Join(dir, fmt.Sprint(i), "sub")
		listen, err := cri.ParseEndpoint("listen", form+filepath.Join(missing, "c.sock"))
		if err != nil {
			t.Fatal(err)
		}
		upstream, err := cri.ParseEndpoint("runtimeEndpoint", form+runtime.Endpoint().Path)
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, dir: dir, runtime: runtime}
		if r.proxy, err = New(Options{Listen: listen, Upstream: upstream}); err != nil {
			t.Fatal(err)
		}
		r.run()
		if _, err := r.version(r.ctx()); err != nil {
			t.Errorf("%q: %v", form, err)
		}
		if fi, err := os.Stat(missing); err != nil || fi.Mode().Perm() != 0o711 {
			t.Errorf("directory: %v %v", fi.Mode(), err)
		}
	}
	for bad, want := range map[string]string{"run/x.sock": "absolute", "unix://run/x.sock": "no host", "/" + strings.Repeat("x", 107): "at most 107"} {
		_, err := cri.ParseEndpoint("listen", bad)
		var wrong *cri.EndpointError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The same sandbox is stopped by two at once, and an unknown one: all succeed,
// as the runtime says, and each success is told.
func TestCaseB94RepeatedStop(t *testing.T) {
	r := newRig(t, nil)
	sb, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0))
	if err != nil {
		t.Fatal(err)
	}
	events := r.subscribeTo()
	both := make(chan struct{})
	r.runtime.Inject("StopPodSandbox", fakecri.Fault{Wait: both, Times: 2})
	var stops sync.WaitGroup
	for range 2 {
		stops.Go(func() {
			if _, err := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sb.GetPodSandboxId()}); err != nil {
				t.Error(err)
			}
		})
	}
	r.inFlight("StopPodSandbox", 2)
	close(both)
	stops.Wait()
	if _, err := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "unknown"}); err != nil {
		t.Error(err)
	}
	r.want(events, EventSandboxStopped, EventSandboxStopped, EventSandboxStopped)
}

// The network's teardown fails after the containers were stopped one by one: the
// error is the caller's, and nobody is told of a success.
func TestCaseB95StopFailsInTheNetwork(t *testing.T) {
	r := newRig(t, nil)
	events := r.subscribeTo()
	r.runtime.Inject("StopPodSandbox", fakecri.Fault{Times: 1, Delay: 200 * time.Millisecond, Err: status.Error(codes.Unknown, "failed to destroy network: cni")})
	_, err := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "s"})
	if status.Code(err) != codes.Unknown || status.Convert(err).Message() != "failed to destroy network: cni" {
		t.Errorf("got %v", err)
	}
	if _, err := r.cri().StopPodSandbox(r.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: "s2"}); err != nil {
		t.Fatal(err)
	}
	if got := r.want(events, EventSandboxStopped); got[0].SandboxID != "s2" {
		t.Errorf("told: %+v", got[0])
	}
}

// A name that is reserved after a restart of the runtime: forwarded, and no
// sandbox is told of.
func TestCaseB97NameReserved(t *testing.T) {
	r := newRig(t, nil)
	events := r.subscribeTo()
	want := status.Error(codes.AlreadyExists, `failed to reserve sandbox name "x": name "x" is reserved for "y"`)
	r.runtime.Inject("RunPodSandbox", fakecri.Fault{Times: 1, Err: want})
	_, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-1", 0))
	if status.Code(err) != codes.AlreadyExists || status.Convert(err).Message() != status.Convert(want).Message() {
		t.Errorf("got %v", err)
	}
	if _, err := r.cri().RunPodSandbox(r.ctx(), sandboxRequest("uid-2", 0)); err != nil {
		t.Fatal(err)
	}
	got := r.want(events, EventRunBegin, EventRunEnd, EventRunBegin, EventRunEnd, EventSandboxStarted)
	if got[1].Err != "AlreadyExists" || got[4].Pod.UID != "uid-2" {
		t.Errorf("%+v", got)
	}
}
