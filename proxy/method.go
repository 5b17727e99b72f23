package proxy

import (
	"strings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kind is a method whose messages we look into. Everything else is other.
type kind uint8

const (
	other kind = iota
	runPodSandbox
	restorePod
	createContainer
	startContainer
	stopContainer
	removeContainer
	stopPodSandbox
	removePodSandbox
	containerStatus
	podSandboxStatus
	pullImage
	imageStatus
	removeImage
)

// splitMethod splits "/runtime.v1.RuntimeService/Version".
func splitMethod(full string) (service, method string) {
	full = strings.TrimPrefix(full, "/")
	at := strings.LastIndexByte(full, '/')
	if at < 0 {
		return "", full
	}
	return full[:at], full[at+1:]
}

// classify finds the kind of a method. Field numbers of v1alpha2 are those of
// v1, which was made from it.
func classify(full string) kind {
	service, method := splitMethod(full)
	switch service {
	case "runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService":
		switch method {
		case "RunPodSandbox":
			return runPodSandbox
		case "RestorePod":
			return restorePod
		case "CreateContainer":
			return createContainer
		case "StartContainer":
			return startContainer
		case "StopContainer":
			return stopContainer
		case "RemoveContainer":
			return removeContainer
		case "StopPodSandbox":
			return stopPodSandbox
		case "RemovePodSandbox":
			return removePodSandbox
		case "ContainerStatus":
			return containerStatus
		case "PodSandboxStatus":
			return podSandboxStatus
		}
	case "runtime.v1.ImageService", "runtime.v1alpha2.ImageService":
		switch method {
		case "PullImage":
			return pullImage
		case "ImageStatus":
			return imageStatus
		case "RemoveImage":
			return removeImage
		}
	}
	return other
}

// shape is how many answers a call has, as far as the compiled API tells. It is
// used for draining only, never for forwarding.
type shape uint8

const (
	shapeUnknown shape = iota
	shapeUnary
	shapeStream
)

// knowledge is what is known of a method beforehand.
type knowledge struct {
	kind  kind
	shape shape
}

// knownMethods are the methods of the compiled API, by full name.
func knownMethods() map[string]knowledge {
	known := make(map[string]knowledge)
	for api, services := range map[*grpc.ServiceDesc][]string{
		&runtimeapi.RuntimeService_ServiceDesc: {"runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService"},
		&runtimeapi.ImageService_ServiceDesc:   {"runtime.v1.ImageService", "runtime.v1alpha2.ImageService"},
	} {
		for _, service := range services {
			for _, m := range api.Methods {
				full := "/" + service + "/" + m.MethodName
				known[full] = knowledge{kind: classify(full), shape: shapeUnary}
			}
			for _, s := range api.Streams {
				full := "/" + service + "/" + s.StreamName
				known[full] = knowledge{kind: classify(full), shape: shapeStream}
			}
		}
	}
	return known
}
