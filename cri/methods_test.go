package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMethods(t *testing.T) {
	m := Methods()
	for _, name := range []string{
		runtimeapi.RuntimeService_Version_FullMethodName, runtimeapi.RuntimeService_GetContainerEvents_FullMethodName,
		runtimeapi.ImageService_PullImage_FullMethodName, "/runtime.v1alpha2.RuntimeService/RunPodSandbox",
	} {
		if !m[name] {
			t.Errorf("%s is not among the methods", name)
		}
	}
	for _, name := range []string{"", "/", "Version", "/grpc.health.v1.Health/Check", "/runtime.v1.RuntimeService/", "/runtime.v1.RuntimeService/Nonsense"} {
		if m[name] {
			t.Errorf("%q is among the methods", name)
		}
	}
	if len(m) < 80 {
		t.Errorf("%d methods only", len(m))
	}
}
