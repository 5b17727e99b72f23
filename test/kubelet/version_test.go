package kubelet

import (
	"cmp"
	"os"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// seed of the generated pods.
const seed = 5

// kubeletVersion is the kubelet the tests run on; `make soak-kubelet` runs them
// on one without a Pods API.
func kubeletVersion() string {
	return cmp.Or(os.Getenv("CRI_EVICTD_KUBELET"), lab.Kubernetes)
}
