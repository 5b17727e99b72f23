package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// From the breach to kubelet's call, through both halves of the program: memory
// runs short of a soft threshold, whose grace is far from over, and new pods wait
// (bugs.md B40). A pause lets them in.
func TestBreachKeepsNewPodsOut(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.memory(16<<20, 8<<20, 67584)
	n.serve("evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1h}\n").waitFor("following the proxy's events")
	eventually(t, "status is good", n.healthy)
	pods := 0
	refused := func(qos string) bool {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		pods++
		uid := fmt.Sprintf("11111111-2222-3333-4444-%012d", pods)
		_, err := n.client().Runtime().RunPodSandbox(ctx, sandboxRequest(uid, fmt.Sprint("new-", pods), "/kubepods/"+qos+"/pod"+uid, 0))
		if err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		return err != nil
	}
	if refused("besteffort") {
		t.Error("refused without pressure")
	}
	n.memory(16<<20, 900<<10, 67584)
	eventually(t, "new BestEffort pods are refused", func() bool { return refused("besteffort") })
	last := pods
	if refused("burstable") {
		t.Error("a pod that asked for something is refused")
	}
	sock := []string{"--admin-socket", n.path("admin.sock")}
	eventually(t, "explain knows the pod", func() bool {
		_, out, _ := command(t, append([]string{"explain", fmt.Sprint("default/new-", last)}, sock...)...)
		return strings.Contains(out, fmt.Sprintf("new pod default/new-%d (uid 11111111-2222-3333-4444-%012d) is not admitted: the node is under MemoryPressure", last, last))
	})
	_, s := n.status()
	if len(s.Proxy.NotAdmitted) == 0 || len(s.Engine.NotAdmitted) == 0 || s.Engine.Held != 0 || s.Engine.LastDecision != nil {
		t.Errorf("%+v %+v", s.Proxy, s.Engine)
	}
	if code, out, errOut := command(t, append([]string{"pause", "--for", "1h"}, sock...)...); code != exitOK {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
	eventually(t, "new pods are let in during a pause", func() bool { return !refused("besteffort") })
	if code, out, errOut := command(t, append([]string{"pause", "--for", "0"}, sock...)...); code != exitOK {
		t.Fatalf("exit %d: %s%s", code, out, errOut)
	}
	eventually(t, "the pause is over", func() bool { return refused("besteffort") })
}
