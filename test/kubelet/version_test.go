package kubelet

import (
	"cmp"
	"os"
	"strings"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// kubeletVersion is the kubelet the tests run on; CRI_EVICTD_KUBELET=1.34.4 is one
// without a Pods API.
func kubeletVersion() string {
	return cmp.Or(os.Getenv("CRI_EVICTD_KUBELET"), lab.Kubernetes)
}

// servesPodsAPI says whether this kubelet does so by itself: from 1.37 on, where
// its feature gate is on (KEP-4188).
func servesPodsAPI() bool { return !strings.HasPrefix(kubeletVersion(), "1.34.") }
