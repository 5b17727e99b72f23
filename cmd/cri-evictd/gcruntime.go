package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// gcReservations asks the proxy on this socket.
type gcReservations struct{ socket string }

// releasePatience bounds the end of a reservation, which ends by itself too.
const releasePatience = 2 * time.Second

// Reserve implements gc.Reservations.
func (r gcReservations) Reserve(ctx context.Context, names []string, quiet, limit time.Duration) (func(), error) {
	ask, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	token, err := proxy.ReserveImage(ask, r.socket, proxy.ImageReservation{Names: names, Quiet: quiet, Limit: limit})
	if errors.Is(err, proxy.ErrImageWanted) {
		return nil, fmt.Errorf("%w: %w", gc.ErrWanted, err)
	}
	if err != nil {
		return nil, err
	}
	return func() {
		// Also when ctx has ended: somebody may be waiting for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
		defer cancel()
		_ = proxy.ReleaseImage(ctx, r.socket, token) // it ends by itself
	}, nil
}

// gcDevices finds where images and containers lie.
func gcDevices(client *cri.Client, read func(context.Context, string) (cgroupfs.Filesystem, error)) func(context.Context) (gc.Devices, error) {
	return func(ctx context.Context) (gc.Devices, error) {
		paths, err := client.ImageFilesystems(ctx)
		if err != nil {
			return gc.Devices{}, err
		}
		if paths.Images == "" {
			return gc.Devices{}, errors.New("the runtime names no image file system")
		}
		if paths.Containers == "" {
			paths.Containers = paths.Images
		}
		images, err := read(ctx, paths.Images)
		if err != nil {
			return gc.Devices{}, err
		}
		containers := images
		if paths.Containers != paths.Images {
			if containers, err = read(ctx, paths.Containers); err != nil {
				return gc.Devices{}, err
			}
		}
		return gc.Devices{Images: images.Device, Containers: containers.Device, ImagesPath: paths.Images, ContainersPath: paths.Containers}, nil
	}
}
