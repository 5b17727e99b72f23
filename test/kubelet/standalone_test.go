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
	if got := request(s, &list.Items[0]); got != 30*mi {
		t.Errorf("the pod's request is %d, want 30 MiB", got)
	}
}
