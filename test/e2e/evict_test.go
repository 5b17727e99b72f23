package e2e

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

func adminClient(t *testing.T, path string) *admin.Client {
	t.Helper()
	e, err := cri.ParseEndpoint("adminSocket", path)
	if err != nil {
		t.Fatal(err)
	}
	return admin.NewClient(e)
}

// The main job: of three pods the hog is evicted, the others run on, the hog is
// refused while a new pod passes, its status says why, and after the pressure
// it may start again.
func TestEvictsTheHog(t *testing.T) {
	for _, v := range lab.Versions() {
		t.Run(string(v), func(t *testing.T) { evictsTheHog(t, v) })
	}
}

func evictsTheHog(t *testing.T, v lab.Version) {
	n := newNode(t, v)
	d := n.serve(quantity(n.threshold()), "")
	ctx := patience(t)

	steady := n.run(d.cri, n.pod("steady", "Guaranteed", 256*mi, "beat"))
	ballast := n.ballast(d.cri)
	neighbour := n.run(d.cri, n.pod("neighbour", "Burstable", 128*mi, "beat"))
	hogSpec := n.pod("hog", "Burstable", 64*mi, n.hogArgs()...)
	hog := n.run(d.cri, hogSpec)

	hold := d.waitKilled(hogSpec.UID)
	if hold.Signal != "memory.available" || hold.Available >= hold.Threshold || hold.Usage < n.margin()/8 {
		t.Errorf("the numbers of the hold make no sense: %s", jsonText(hold))
	}
	n.mustRun("the steady pod", steady.ContainerIDs[0])
	n.mustRun("the ballast", ballast.ContainerIDs[0])
	n.mustRun("the neighbour", neighbour.ContainerIDs[0])
	if got := d.evictions(); len(got) != 1 || got["hog"] != 1 {
		t.Errorf("evicted %v, want the hog alone, once", got)
	}

	refusedText := mustBeRefused(t, d, hogSpec)
	if again := mustBeRefused(t, d, hogSpec); again != refusedText {
		t.Errorf("the refusal changes, which floods Kubernetes with events:\n%s\n%s", refusedText, again)
	}
	fresh := n.run(d.cri, n.pod("hog", "Burstable", 64*mi, "beat")) // same name, new UID
	n.mustRun("a new pod of the same name", fresh.ContainerIDs[0])

	eventually(t, "the runtime sees the hog's end", 30*time.Second, func() bool {
		return n.containerState(hog.ContainerIDs[0]) == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	mustSayEvicted(t, n, d, hog, hold)
	mustBeIdentical(t, n, d, []lab.Running{steady, neighbour, fresh})

	if x, err := d.admin().Explain(ctx, "default/hog"); err != nil || len(x.Decisions) == 0 || x.Decisions[len(x.Decisions)-1].Outcome != "evicted" {
		t.Errorf("explain: %v, %s", err, jsonText(x))
	}

	mustBeRefused(t, d, hogSpec) // while the pressure's cause may return
	n.remove(ballast)
	next := again(hogSpec, "beat")
	var back lab.Running
	eventually(t, "the hog starts again after pressure and back-off", 90*time.Second, func() bool {
		time.Sleep(time.Second) // kubelet tries every 10 to 15 s
		var err error
		back, err = lab.RunPod(ctx, d.cri, next)
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		return err == nil
	})
	n.mustRun("the hog's second life", back.ContainerIDs[0])
	if hs := d.holds(hogSpec.UID); len(hs) != 1 || hs[0].State != "released" || hs[0].ReleaseReason != "pressure-over" {
		t.Errorf("holds of the hog: %s", jsonText(hs))
	}
}

// mustBeRefused tries to start the pod and returns the refusal's text.
func mustBeRefused(t *testing.T, d *daemon, spec lab.PodSpec) string {
	t.Helper()
	spec = again(spec)
	_, err := lab.RunPod(patience(t), d.cri, spec)
	st, _ := status.FromError(err)
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("RunPodSandbox of a held pod: %v, want ResourceExhausted", err)
	}
	var info *errdetails.ErrorInfo
	for _, x := range status.Convert(err).Details() {
		if i, ok := x.(*errdetails.ErrorInfo); ok {
			info = i
		}
	}
	if info == nil || info.GetDomain() != "cri-evictd.io" {
		t.Errorf("the refusal has no ErrorInfo of ours: %v", st.Details())
	}
	text := status.Convert(err).Message()
	if strings.Contains(text, "network is not ready") {
		t.Errorf("the refusal makes kubelet try every second: %s", text)
	}
	return text
}

// mustSayEvicted compares the hog's status through the proxy with the direct
// one: only reason and message may differ.
func mustSayEvicted(t *testing.T, n *node, d *daemon, hog lab.Running, hold admin.Hold) {
	t.Helper()
	req := &runtimeapi.ContainerStatusRequest{ContainerId: hog.ContainerIDs[0]}
	seen, err := d.cri.ContainerStatus(patience(t), req)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := n.direct.ContainerStatus(patience(t), req)
	if err != nil {
		t.Fatal(err)
	}
	s := seen.GetStatus()
	if s.GetReason() != "Evicted" || !strings.Contains(s.GetMessage(), "The node was low on resource: memory. Threshold quantity: ") {
		t.Errorf("reason %q, message %q", s.GetReason(), s.GetMessage())
	}
	if s.GetExitCode() != 137 {
		t.Errorf("exit code %d, want 137", s.GetExitCode())
	}
	s.Reason, s.Message = direct.GetStatus().GetReason(), direct.GetStatus().GetMessage()
	if got, want := jsonText(seen), jsonText(direct); got != want {
		t.Errorf("more than reason and message differ:\n%s\n%s", got, want)
	}
}
