package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/inventory"
	"github.com/cri-evictd/cri-evictd/kube"
	"github.com/cri-evictd/cri-evictd/kube/podsapi"
)

// checkFacts says how exact priorities and requests will be.
func checkFacts(ctx context.Context, f *findings, cfg config.Config) {
	const what = "pod facts"
	err := askPodsAPI(ctx, cfg.PodsAPISocket.Path)
	switch {
	case err == nil:
		f.add(levelOK, what, "kubelet's Pods API answers at %s: priorities and requests are exact", cfg.PodsAPISocket)
		return
	case cfg.Kubeconfig != "":
		f.add(levelOK, what, "kubelet's Pods API: %v; the API server's watch takes its place", err)
		return
	case errors.Is(err, fs.ErrNotExist):
		f.add(levelWarning, what, "kubelet's Pods API: %v; without it (kubelet 1.37) or a kubeconfig priorities are unknown and the requests of Burstable pods are estimates", err)
		return
	}
	f.add(levelWarning, what, "kubelet's Pods API: %v; priorities are unknown and the requests of Burstable pods are estimates", err)
}

// askPodsAPI returns nil when kubelet answers about a pod that nobody has.
func askPodsAPI(ctx context.Context, socket string) error {
	if _, err := os.Stat(socket); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	feed := kube.NewStore(time.Now).Feed(inventory.FromPodsAPI)
	_, err := podsapi.New(socket, feed, time.Now, quiet).Get(ctx, "00000000-0000-0000-0000-000000000000")
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}
