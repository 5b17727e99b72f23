package kubelet

import (
	"cmp"
	"os"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// kubeletVersion is the kubelet the tests run on; CRI_EVICTD_KUBELET=1.34.4 is one
// without a Pods API.
func kubeletVersion() string {
	return cmp.Or(os.Getenv("CRI_EVICTD_KUBELET"), lab.Kubernetes)
}
