package cri

import (
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Methods are the full names, such as "/runtime.v1.RuntimeService/Version", of
// every method of the compiled API, in v1 and in v1alpha2, which had the same
// services. Runtimes may serve others.
func Methods() map[string]bool {
	out := map[string]bool{}
	for _, api := range []*grpc.ServiceDesc{&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc} {
		short := api.ServiceName[len("runtime.v1."):]
		for _, version := range []string{"runtime.v1.", "runtime.v1alpha2."} {
			for _, m := range api.Methods {
				out["/"+version+short+"/"+m.MethodName] = true
			}
			for _, s := range api.Streams {
				out["/"+version+short+"/"+s.StreamName] = true
			}
		}
	}
	return out
}
