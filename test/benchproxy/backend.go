package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
)

// message is the content of one message, passed through as it is.
type message []byte

// rawCodec is plain protobuf on the wire; a *message is not encoded or decoded.
// A received one keeps its length only, where discard is set.
type rawCodec struct{ discard bool }

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *message:
		return mem.BufferSlice{mem.SliceBuffer(*m)}, nil
	case proto.Message:
		b, err := proto.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("cannot encode a %T", v)
}

func (c rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *message:
		if !c.discard {
			*m = data.Materialize()
		}
		return nil
	case proto.Message:
		return proto.Unmarshal(data.Materialize(), m)
	}
	return fmt.Errorf("cannot decode into a %T", v)
}

// runBackend serves canned answers, encoded once: the runtime behind all
// variants.
func runBackend(listen string) error {
	answers, err := cannedAnswers()
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(cri.MaxMessageSize),
		grpc.MaxSendMsgSize(cri.MaxMessageSize),
		grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
			var req message
			if err := ss.RecvMsg(&req); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			full, _ := grpc.MethodFromServerStream(ss)
			answer, err := answers.to(full[strings.LastIndexByte(full, '/')+1:], req)
			if err != nil {
				return err
			}
			return ss.SendMsg((*message)(&answer))
		}),
	)
	l, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	return server.Serve(l)
}

func (c *canned) to(method string, req []byte) ([]byte, error) {
	answer, ok := c.methods[method]
	if method == "ListContainers" {
		var r runtimeapi.ListContainersRequest
		if err := proto.Unmarshal(req, &r); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		answer, ok = c.lists[r.GetFilter().GetId()]
	}
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "no answer to %s", method)
	}
	return answer, nil
}
