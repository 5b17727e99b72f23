package e2e

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/holds"
)

// holdsFile reads the records of one pod from the holds file itself, as the
// proxy does, whether or not the daemon lives.
func holdsFile(t *testing.T, n *node, uid string) []holds.Record {
	t.Helper()
	r := holds.OpenReader(filepath.Join(n.dir, "run"))
	defer func() { _ = r.Close() }()
	return r.Lookup(uid)
}

// mustBeUnavailable: with the runtime gone a call fails at once, not at its
// deadline.
func mustBeUnavailable(t *testing.T, d *daemon) {
	t.Helper()
	eventually(t, "Unavailable", 10*time.Second, func() bool {
		begun := time.Now()
		_, err := d.cri.Version(patience(t), &runtimeapi.VersionRequest{})
		return status.Code(err) == codes.Unavailable && time.Since(begun) < 5*time.Second
	})
}

// mustEqualFreshList compares the pods explain knows with the runtime's lists.
func mustEqualFreshList(t *testing.T, n *node, d *daemon) {
	t.Helper()
	var known, listed []string
	eventually(t, "inventory equals a fresh list", 30*time.Second, func() bool {
		x, err := d.admin().Explain(t.Context(), "")
		if err != nil {
			return false
		}
		known, listed = nil, nil
		for _, c := range x.Candidates {
			known = append(known, c.UID)
		}
		r, err := n.direct.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		})
		if err != nil {
			return false
		}
		for _, s := range r.GetItems() {
			listed = append(listed, s.GetMetadata().GetUid())
		}
		slices.Sort(known)
		slices.Sort(listed)
		return slices.Equal(known, listed)
	})
	if len(listed) == 0 {
		t.Error("the list to compare with is empty")
	}
}
