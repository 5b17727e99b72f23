package proxy

import (
	"strings"

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

func shapeOf(full string) shape {
	service, method := splitMethod(full)
	desc := &runtimeapi.RuntimeService_ServiceDesc
	switch service {
	case "runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService":
	case "runtime.v1.ImageService", "runtime.v1alpha2.ImageService":
		desc = &runtimeapi.ImageService_ServiceDesc
	default:
		return shapeUnknown
	}
	for _, m := range desc.Methods {
		if m.MethodName == method {
			return shapeUnary
		}
	}
	for _, s := range desc.Streams {
		if s.StreamName == method {
			return shapeStream
		}
	}
	return shapeUnknown
}
