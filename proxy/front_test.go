package proxy

import (
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Somebody cleans up the run directory: kubelet must find a runtime again.
func TestRemovedSocketIsMadeAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	path := r.proxy.opts.Listen.Path
	if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a socket at our path", func() bool {
			fi, err := os.Lstat(path)
			return err == nil && fi.Mode().Type() == os.ModeSocket && fi.Mode().Perm() == 0o660
		})
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(r.ctx(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Errorf("a new connection: %v", err)
		}
		_ = conn.Close()
		if _, err := r.cri().Version(r.ctx(), &runtimeapi.VersionRequest{}); err != nil {
			t.Errorf("the connection from before: %v", err)
		}
	}
}
