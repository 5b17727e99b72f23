package cri

import "fmt"

// Labels kubelet puts on every sandbox and container.
const (
	LabelPodUID       = "io.kubernetes.pod.uid"
	LabelPodName      = "io.kubernetes.pod.name"
	LabelPodNamespace = "io.kubernetes.pod.namespace"
	LabelContainer    = "io.kubernetes.container.name"
)

// SandboxConfig is what a request to start a sandbox says about its pod.
type SandboxConfig struct {
	UID, Namespace, Name string
	Attempt              uint32
	Labels, Annotations  map[string]string
	// CgroupParent is as kubelet wrote it: a path or the name of a slice.
	CgroupParent   string
	RuntimeHandler string
}

// ContainerConfig is what a CreateContainer request says.
type ContainerConfig struct {
	SandboxID, Name, Image string
	// UserImage is the image as the pod's spec has it; Image may be its ID. Mounted
	// are the images that are mounted as volumes.
	UserImage                     string
	Mounted                       []string
	PodUID, PodNamespace, PodName string
	// Attempt counts the instances of this container in its pod.
	Attempt uint32
	// HasResources tells whether the request has Linux resources at all; without
	// them the next two are unknown rather than zero.
	HasResources bool
	OOMScoreAdj  int64
	// MemoryLimit is in bytes, 0 is unlimited.
	MemoryLimit         int64
	Labels, Annotations map[string]string
}

// DecodeRunPodSandbox reads a RunPodSandboxRequest. Like all decoders here it
// knows only the fields it needs, ignores all others and never panics.
func DecodeRunPodSandbox(req []byte) (SandboxConfig, error) {
	var c SandboxConfig
	err := walk(req, func(f field) error {
		switch {
		case f.isBytes(1):
			return c.decode(f.bytes)
		case f.isBytes(2):
			c.RuntimeHandler = string(f.bytes)
		}
		return nil
	})
	return c, wrap("RunPodSandboxRequest", err)
}

// DecodeRestorePod reads a RestorePodRequest.
func DecodeRestorePod(req []byte) (SandboxConfig, error) {
	var c SandboxConfig
	err := walk(req, func(f field) error {
		switch {
		case f.isBytes(2):
			return c.decode(f.bytes)
		case f.isBytes(3):
			c.RuntimeHandler = string(f.bytes)
		}
		return nil
	})
	return c, wrap("RestorePodRequest", err)
}

// DecodeRunPodSandboxResponse returns the ID of the new sandbox. It reads a
// RestorePodResponse as well.
func DecodeRunPodSandboxResponse(b []byte) (sandboxID string, err error) {
	sandboxID, err = stringField(b, 1)
	return sandboxID, wrap("RunPodSandboxResponse", err)
}

// DecodeCreateContainer reads a CreateContainerRequest. The pod is taken from
// the sandbox's configuration in it, else from the container's labels.
func DecodeCreateContainer(req []byte) (ContainerConfig, error) {
	var c ContainerConfig
	var sandbox SandboxConfig
	err := walk(req, func(f field) error {
		switch {
		case f.isBytes(1):
			c.SandboxID = string(f.bytes)
		case f.isBytes(2):
			return c.decode(f.bytes)
		case f.isBytes(3):
			return sandbox.decode(f.bytes)
		}
		return nil
	})
	c.PodUID, c.PodNamespace, c.PodName = sandbox.UID, sandbox.Namespace, sandbox.Name
	if c.PodUID == "" {
		c.PodUID, c.PodNamespace, c.PodName = c.Labels[LabelPodUID], c.Labels[LabelPodNamespace], c.Labels[LabelPodName]
	}
	return c, wrap("CreateContainerRequest", err)
}

// DecodeCreateContainerResponse returns the ID of the new container.
func DecodeCreateContainerResponse(b []byte) (containerID string, err error) {
	containerID, err = stringField(b, 1)
	return containerID, wrap("CreateContainerResponse", err)
}

// DecodeID returns the ID in a request that is about one existing sandbox or
// container: StartContainer, Stop* and Remove* (of sandboxes and containers).
func DecodeID(req []byte) (string, error) {
	id, err := stringField(req, 1)
	return id, wrap("request about an ID", err)
}

// DecodePullImageResponse returns what the runtime calls the image that was
// pulled: an ID, or a reference.
func DecodePullImageResponse(b []byte) (image string, err error) {
	image, err = stringField(b, 1)
	return image, wrap("PullImageResponse", err)
}

// DecodeImageRequest reads a PullImageRequest, a RemoveImageRequest or an
// ImageStatusRequest: the image and, when pulling, the pod it is pulled for.
func DecodeImageRequest(req []byte) (image string, sandbox SandboxConfig, err error) {
	err = walk(req, func(f field) error {
		switch {
		case f.isBytes(1):
			s, err := stringField(f.bytes, 1)
			if err != nil {
				return wrap("image", err)
			}
			if s != "" {
				image = s
			}
		case f.isBytes(3):
			return sandbox.decode(f.bytes)
		}
		return nil
	})
	return image, sandbox, wrap("image request", err)
}

// decode merges an encoded PodSandboxConfig into c.
func (c *SandboxConfig) decode(b []byte) error {
	err := walk(b, func(f field) error {
		switch {
		case f.isBytes(1):
			return c.decodeMetadata(f.bytes)
		case f.isBytes(6):
			return addMapEntry(&c.Labels, f.bytes)
		case f.isBytes(7):
			return addMapEntry(&c.Annotations, f.bytes)
		case f.isBytes(8):
			return walk(f.bytes, func(f field) error {
				if f.isBytes(1) {
					c.CgroupParent = string(f.bytes)
				}
				return nil
			})
		}
		return nil
	})
	return wrap("sandbox config", err)
}

func (c *SandboxConfig) decodeMetadata(b []byte) error {
	err := walk(b, func(f field) error {
		switch {
		case f.isBytes(1):
			c.Name = string(f.bytes)
		case f.isBytes(2):
			c.UID = string(f.bytes)
		case f.isBytes(3):
			c.Namespace = string(f.bytes)
		case f.isVarint(4):
			c.Attempt = uint32(f.varint)
		}
		return nil
	})
	return wrap("sandbox metadata", err)
}

// decode merges an encoded ContainerConfig into c.
func (c *ContainerConfig) decode(b []byte) error {
	err := walk(b, func(f field) error {
		switch {
		case f.isBytes(1):
			return walk(f.bytes, func(f field) error {
				switch {
				case f.isBytes(1):
					c.Name = string(f.bytes)
				case f.isVarint(2):
					c.Attempt = uint32(f.varint)
				}
				return nil
			})
		case f.isBytes(2):
			return walk(f.bytes, func(f field) error {
				switch {
				case f.isBytes(1) && len(f.bytes) > 0:
					c.Image = string(f.bytes)
				case f.isBytes(18) && len(f.bytes) > 0:
					c.UserImage = string(f.bytes)
				}
				return nil
			})
		case f.isBytes(7):
			return c.decodeMount(f.bytes)
		case f.isBytes(9):
			return addMapEntry(&c.Labels, f.bytes)
		case f.isBytes(10):
			return addMapEntry(&c.Annotations, f.bytes)
		case f.isBytes(15):
			return walk(f.bytes, func(f field) error {
				if f.isBytes(1) {
					return c.decodeResources(f.bytes)
				}
				return nil
			})
		}
		return nil
	})
	return wrap("container config", err)
}

// decodeMount adds the image of one mount, if it has one.
func (c *ContainerConfig) decodeMount(b []byte) error {
	return walk(b, func(f field) error {
		if !f.isBytes(9) {
			return nil
		}
		image, err := stringField(f.bytes, 1)
		if image != "" {
			c.Mounted = append(c.Mounted, image)
		}
		return err
	})
}

// decodeResources merges encoded LinuxContainerResources into c.
func (c *ContainerConfig) decodeResources(b []byte) error {
	c.HasResources = true
	return walk(b, func(f field) error {
		switch {
		case f.isVarint(4):
			c.MemoryLimit = int64(f.varint)
		case f.isVarint(5):
			c.OOMScoreAdj = int64(f.varint)
		}
		return nil
	})
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
