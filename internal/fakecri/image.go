package fakecri

import (
	"context"
	"path/filepath"
	"sort"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageService keeps images by reference; every pull succeeds.
type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	s *Server
}

// pulledSize is what a pulled image measures, in bytes.
const pulledSize = 10 << 20

func (i *imageService) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	st := &i.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	resp := &runtimeapi.ListImagesResponse{}
	for _, img := range st.images {
		resp.Images = append(resp.Images, img)
	}
	sort.Slice(resp.Images, func(a, b int) bool { return resp.Images[a].GetId() < resp.Images[b].GetId() })
	return resp, nil
}

// lookupLocked finds an image by reference or ID.
func (st *state) lookupLocked(name string) (ref string, img *runtimeapi.Image) {
	for ref, img := range st.images {
		if ref == name || img.GetId() == name {
			return ref, img
		}
	}
	return "", nil
}

func (i *imageService) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	st := &i.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	_, img := st.lookupLocked(req.GetImage().GetImage())
	return &runtimeapi.ImageStatusResponse{Image: img}, nil
}

func (i *imageService) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref := req.GetImage().GetImage()
	i.s.AddImage(ref, pulledSize, false)
	st := &i.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	return &runtimeapi.PullImageResponse{ImageRef: st.images[ref].GetId()}, nil
}

func (i *imageService) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	st := &i.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if ref, img := st.lookupLocked(req.GetImage().GetImage()); img != nil {
		delete(st.images, ref)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo names the directory of the socket as the image filesystem: it
// exists, which is what callers of statfs need.
func (i *imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	st := &i.s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	var used uint64
	for _, img := range st.images {
		used += img.GetSize()
	}
	fs := []*runtimeapi.FilesystemUsage{{
		Timestamp:  st.now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: filepath.Dir(i.s.path)},
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(st.images))},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, nil
}
