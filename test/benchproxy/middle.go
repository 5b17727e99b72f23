package main

import (
	"context"
	"net"
	"os/signal"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/proxy"
)

// runRelay copies bytes between each connection and one of its own to the
// backend: what any process in between costs at least.
func runRelay(listen, upstream string) error {
	l, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("unix", upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		var ends sync.WaitGroup
		ends.Go(func() { copyBytes(server, client) })
		ends.Go(func() { copyBytes(client, server) })
	}
}

// copyBytes is a plain loop: io.Copy would splice, which no proxy that looks at
// anything can.
func copyBytes(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// typedProxy decodes and encodes each message, as a proxy written against the
// compiled API does.
type typedProxy struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	upstream runtimeapi.RuntimeServiceClient
}

func (p *typedProxy) Version(ctx context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return p.upstream.Version(ctx, r)
}

func (p *typedProxy) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return p.upstream.ListContainers(ctx, r)
}

func (p *typedProxy) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return p.upstream.ContainerStatus(ctx, r)
}

func runTyped(listen, upstream string) error {
	conn, err := grpc.NewClient(cri.Target, cri.DialOptions(cri.Endpoint{Path: upstream}, nil)...)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(cri.MaxMessageSize), grpc.MaxSendMsgSize(cri.MaxMessageSize))
	runtimeapi.RegisterRuntimeServiceServer(server, &typedProxy{upstream: runtimeapi.NewRuntimeServiceClient(conn)})
	l, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	return server.Serve(l)
}

// runProxyCounted runs the proxy's package in this program, only to count its
// allocations: the binary does not tell them.
func runProxyCounted(listen, upstream, holdsDir string) error {
	reader := holds.OpenReader(holdsDir)
	defer func() { _ = reader.Close() }()
	p, err := proxy.New(proxy.Options{
		Listen: cri.Endpoint{Path: listen}, Upstream: cri.Endpoint{Path: upstream}, Holds: reader, DecorateStatus: true,
	})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return p.Run(ctx)
}
