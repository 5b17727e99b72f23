package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/cri-evictd/cri-evictd/cri"
)

// opaque is a message passed on in the buffers it came in.
type opaque struct{ data mem.BufferSlice }

// opaqueCodec is what any forwarder of unknown messages needs.
type opaqueCodec struct{}

func (opaqueCodec) Name() string { return "proto" }

func (opaqueCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*opaque)
	if !ok {
		return nil, fmt.Errorf("cannot encode a %T", v)
	}
	return m.data, nil // its reference goes with it
}

func (opaqueCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*opaque)
	if !ok {
		return fmt.Errorf("cannot decode into a %T", v)
	}
	data.Ref()
	m.data = data
	return nil
}

// runBare is the least a forwarder written with grpc-go can do: every method by
// UnknownServiceHandler, frames passed on unread, metadata copied; no gate, no
// events, no counting, no draining, no recover. What it costs more than the
// relay is grpc-go's. The Go runtime is set as that of the proxy.
func runBare(listen, upstream string) error {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(30)
	}
	conn, err := grpc.NewClient(cri.Target, cri.DialOptions(cri.Endpoint{Path: upstream}, nil)...)
	if err != nil {
		return err
	}
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(opaqueCodec{}),
		grpc.MaxRecvMsgSize(cri.MaxMessageSize),
		grpc.MaxSendMsgSize(cri.MaxMessageSize),
		grpc.StaticStreamWindowSize(cri.StreamWindow),
		grpc.StaticConnWindowSize(cri.ConnWindow),
		grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(ss)
			md, _ := metadata.FromIncomingContext(ss.Context())
			cs, err := conn.NewStream(metadata.NewOutgoingContext(ss.Context(), md), both, method, grpc.ForceCodecV2(opaqueCodec{}))
			if err != nil {
				return err
			}
			go func() {
				if pump(ss, cs) == nil {
					_ = cs.CloseSend() // a broken stream says so to its reader
				}
			}()
			if header, err := cs.Header(); err == nil && header != nil {
				if err := ss.SendHeader(header); err != nil {
					return err
				}
			}
			err = pump(cs, ss)
			ss.SetTrailer(cs.Trailer())
			return err
		}),
	)
	l, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	return server.Serve(l)
}

// pump moves messages until from has no more.
func pump(from interface{ RecvMsg(any) error }, to interface{ SendMsg(any) error }) error {
	var m opaque
	for {
		if err := from.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := to.SendMsg(&m); err != nil {
			return err
		}
	}
}
