// Package allocated reads the file in which kubelet keeps what it has allocated
// to each pod, <kubelet root>/allocated_pods_state. kubelet's eviction counts
// with these numbers. The file is internal to kubelet: whatever does not look as
// expected counts as no file.
package allocated

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	"github.com/cri-evictd/cri-evictd/kube"
)

// FileName is the file's name below kubelet's root (Kubernetes 1.33 to 1.37,
// pkg/kubelet/allocation/allocation_manager.go).
const FileName = "allocated_pods_state"

var (
	// ErrChecksum means that the file does not have the checksum it names.
	ErrChecksum = errors.New("the checksum does not match")
	// ErrFormat means that the file is not of a known form.
	ErrFormat = errors.New("not a form of the file that is known")
)

// Parse reads the file's content. The result has every pod that kubelet has
// admitted, by UID. The errors are ErrChecksum and ErrFormat.
func Parse(content []byte) (map[string]kube.Allocation, error) {
	var file struct {
		Data     *string `json:"data"`
		Checksum *uint64 `json:"checksum"`
	}
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if file.Data == nil || file.Checksum == nil {
		return nil, fmt.Errorf("%w: no data and checksum", ErrFormat)
	}
	if sum := checksum(*file.Data); sum != *file.Checksum {
		return nil, fmt.Errorf("%w: %d, and the file says %d", ErrChecksum, sum, *file.Checksum)
	}
	var data struct {
		Entries map[string]struct {
			// nil where the key is missing: then the numbers are elsewhere.
			ContainerResources map[string]v1.ResourceRequirements
			PodLevelResources  json.RawMessage
		} `json:"entries"`
	}
	if err := json.Unmarshal([]byte(*file.Data), &data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	pods := make(map[string]kube.Allocation, len(data.Entries))
	for uid, entry := range data.Entries {
		if len(entry.ContainerResources) == 0 {
			return nil, fmt.Errorf("%w: pod %s has no ContainerResources", ErrFormat, uid)
		}
		a := kube.Allocation{
			Containers:     make(map[string]v1.ResourceList, len(entry.ContainerResources)),
			ContainersOnly: entry.PodLevelResources == nil, // not even null
		}
		if !a.ContainersOnly {
			if err := json.Unmarshal(entry.PodLevelResources, &a.Pod); err != nil {
				return nil, fmt.Errorf("%w: pod %s: %w", ErrFormat, uid, err)
			}
		}
		for name, r := range entry.ContainerResources {
			a.Containers[name] = r.Requests
		}
		pods[uid] = a
	}
	return pods, nil
}

// checksum is kubelet's (Kubernetes 1.37,
// pkg/kubelet/checkpointmanager/checksum/checksum.go getChecksum and
// pkg/util/hash/hash.go DeepHashObject).
func checksum(data string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(dump.ForHash(data))) // a hash takes everything
	return uint64(h.Sum32())
}
