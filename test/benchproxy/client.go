package main

import (
	"context"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dial connects as kubelet does (k8s.io/cri-client/pkg/remote_runtime.go):
// grpc-go's own windows and buffers, authority localhost, 16 MiB.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", addr)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(bigSize+1<<20)), // kubelet's is 16 MiB; the memory test needs more
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}),
	)
}

// call is one call of a scenario.
type call func(ctx context.Context, cc *grpc.ClientConn) error

func version(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewRuntimeServiceClient(cc).Version(ctx, &runtimeapi.VersionRequest{Version: "0.1.0"})
	return err
}

func oneStatus(ctx context.Context, cc *grpc.ClientConn) error {
	_, err := runtimeapi.NewRuntimeServiceClient(cc).ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: hexID("c", 1)})
	return err
}

func listRequest(id string) *runtimeapi.ListContainersRequest {
	return &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}}
}

// list decodes the answer, as kubelet does.
func list(n int) call {
	req := listRequest(strconv.Itoa(n))
	return func(ctx context.Context, cc *grpc.ClientConn) error {
		_, err := runtimeapi.NewRuntimeServiceClient(cc).ListContainers(ctx, req)
		return err
	}
}

// rawList receives the whole answer and throws it away undecoded, so that
// nothing hides what lies between.
func rawList(id string) call {
	req := message(mustEncode(listRequest(id)))
	return func(ctx context.Context, cc *grpc.ClientConn) error {
		var answer message
		return cc.Invoke(ctx, runtimeapi.RuntimeService_ListContainers_FullMethodName, &req, &answer, grpc.ForceCodecV2(rawCodec{discard: true}))
	}
}
