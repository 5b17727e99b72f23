package inventory

import "time"

// EventType says what passed through the proxy.
type EventType uint8

// The events the inventory learns from.
const (
	// SandboxWanted: RunPodSandbox was called, whether or not it was let
	// through.
	SandboxWanted EventType = iota + 1
	// SandboxStarted: RunPodSandbox succeeded.
	SandboxStarted
	// SandboxStopped and SandboxRemoved: the call succeeded.
	SandboxStopped
	SandboxRemoved
	// ContainerCreated: CreateContainer succeeded.
	ContainerCreated
	// ContainerStopped and ContainerRemoved: the call succeeded.
	ContainerStopped
	ContainerRemoved
	// Dirty: something may have been missed; the lists have to be read again.
	Dirty
)

// Event is one thing seen at the proxy.
type Event struct {
	Type EventType
	Time time.Time
	Pod  Ref // may be empty for stop and remove
	// Sandbox is valid for SandboxStarted; its ID for all sandbox events.
	Sandbox Sandbox
	// Container is valid for ContainerCreated; its ID for all container events.
	Container   Container
	Labels      map[string]string
	Annotations map[string]string
}
