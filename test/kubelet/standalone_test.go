package kubelet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/kube"
)

// A kubelet without an API server runs what lies in a folder, and its file tells
// what it allocated.
func TestStandAlone(t *testing.T) {
	n := startNode(t, scratch(t), "")
	s := kube.NewStore(time.Now)
	reader := n.following(s)
	pod := small("static", 30*mi)
	pod.UID = "0123456789abcdef0123456789abcdef"
	manifest, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.kubelet.StaticPods, "static.json"), manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	var list v1.PodList
	eventually(t, "kubelet has the pod", time.Minute, func() bool {
		if err := json.Unmarshal(n.list(), &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items) == 1
	})
	eventually(t, "its file has the pod", time.Minute, func() bool { return reader.Status().Pods == 1 })
	if !servesPodsAPI() {
		// Its file lacks the pod level: without a spec nothing is concluded from it.
		if got := request(s, &list.Items[0]); got != -1 {
			t.Errorf("the pod's request is %d, want none", got)
		}
		return
	}
	if got := request(s, &list.Items[0]); got != 30*mi {
		t.Errorf("the pod's request is %d, want 30 MiB", got)
	}
	asked, uid := n.asking(), string(list.Items[0].UID)
	eventually(t, "the Pods API has the pod", 30*time.Second, func() bool { _, ok := asked.Pod(uid); return ok })
	if f, _ := asked.Pod(uid); !f.Static || f.Request.Value != 30*mi || !f.Request.Exact {
		t.Errorf("the Pods API's word: %+v, want a static pod that asks for 30 MiB", f)
	}
	// Without its manifest the pod ends, and is gone.
	if err := os.Remove(filepath.Join(n.kubelet.StaticPods, "static.json")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone", 90*time.Second, func() bool { return asked.Gone(uid) })
}
