package cri

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageFilesystems are the directories the runtime keeps images and the writable
// layers of containers in. What it says of their use counts layers more than once
// and is no part of this.
type ImageFilesystems struct {
	// Images and Containers are absolute paths, the first one the runtime names;
	// empty when it names none.
	Images, Containers string
}

// ImageFilesystems asks the runtime (ImageFsInfo). As in kubelet only the first
// entry counts (Kubernetes 1.37, pkg/kubelet/stats/cri_stats_provider.go).
func (c *Client) ImageFilesystems(ctx context.Context) (ImageFilesystems, error) {
	resp, err := c.image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return ImageFilesystems{}, fmt.Errorf("image filesystem of %s: %w", c.endpoint, err)
	}
	return ImageFilesystems{Images: firstPath(resp.GetImageFilesystems()), Containers: firstPath(resp.GetContainerFilesystems())}, nil
}

func firstPath(list []*runtimeapi.FilesystemUsage) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].GetFsId().GetMountpoint()
}
