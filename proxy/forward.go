package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // either side may compress; we decode and encode hop by hop
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// handle is the handler of every method of every service.
func (p *Proxy) handle(_ any, ss grpc.ServerStream) (err error) {
	method, ok := grpc.MethodFromServerStream(ss)
	if !ok {
		return status.Error(codes.Internal, "call without a method name")
	}
	if method == pingMethod && fromOurselves(ss.Context()) {
		return p.pong(ss)
	}
	defer func() {
		if r := recover(); r != nil {
			// A fault in forwarding itself: this call is lost, the others and the
			// process are not.
			p.panicked(method, r, debug.Stack())
			err = status.Error(codes.Internal, "cri-evictd proxy: fault while forwarding")
		}
		p.stats.count(method, status.Code(err))
	}()
	return p.forward(method, ss)
}

// forward carries one call to the runtime and its answer back.
func (p *Proxy) forward(method string, ss grpc.ServerStream) error {
	incoming, _ := metadata.FromIncomingContext(ss.Context())
	subtype := contentSubtype(incoming)
	opts := p.callOptions(subtype, incoming)
	ctx, cancel := context.WithCancelCause(metadata.NewOutgoingContext(ss.Context(), endToEnd(incoming)))
	defer cancel(nil)

	known := p.methods[method]
	c := &call{shape: known.shape, cancel: cancel}
	if !p.calls.add(c) {
		return status.Error(codes.Unavailable, errDraining.Error())
	}
	defer p.calls.remove(c)

	// Only for the methods we look into, the request is read before the call
	// goes on; all others are opened at once, whoever speaks first.
	t := p.newTap(method, known.kind, subtype)
	var first *frame
	if t != nil {
		first = &frame{}
		if err := ss.RecvMsg(first); err != nil {
			if !errors.Is(err, io.EOF) {
				return err
			}
			first, t = nil, nil // no message at all: the runtime will say what it thinks of that
		} else if refusal := t.request(ss.Context(), first); refusal != nil {
			first.free()
			return refusal
		}
	}
	err := p.exchange(ctx, c, t, first, method, opts, ss)
	if t != nil {
		t.end(err)
	}
	return err
}

// callOptions are those of the call to the runtime.
func (p *Proxy) callOptions(subtype string, incoming metadata.MD) []grpc.CallOption {
	opts := make([]grpc.CallOption, 0, 3)
	opts = append(opts, grpc.ForceCodecV2(rawCodec{name: subtype}))
	if a := incoming[authorityHeader]; len(a) == 1 {
		opts = append(opts, grpc.CallAuthority(a[0]))
	}
	if !p.upstream.everConnected() {
		// kubelet ends if its first Version fails, so that before the runtime
		// was ever there its calls wait as long as their deadline allows.
		opts = append(opts, grpc.WaitForReady(true))
	}
	return opts
}

// exchange opens the upstream call and moves frames both ways until it ends.
func (p *Proxy) exchange(ctx context.Context, c *call, t *tap, first *frame, method string,
	opts []grpc.CallOption, ss grpc.ServerStream) error {
	cs, err := p.upstream.conn.NewStream(ctx, p.bidirectional, method, opts...)
	if err != nil {
		if first != nil {
			first.free()
		}
		return p.localError(ctx, err)
	}
	p.upstream.connected()
	c.upstream.Store(true)

	p.pumps.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				p.panicked(method, r, debug.Stack())
				c.cancel(fmt.Errorf("fault while forwarding: %v", r))
			}
		}()
		if err := pumpRequests(first, ss, cs); err != nil {
			c.cancel(err)
		}
	})

	// Nil without an error means that the runtime sent no headers of their own:
	// then we must not either, or trailers-only would not stay so.
	header, err := cs.Header()
	if err == nil && header != nil {
		c.answering.Store(true)
		if err := ss.SendHeader(endToEnd(header)); err != nil {
			return err
		}
	}
	f := &frame{}
	for {
		if err := cs.RecvMsg(f); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			} else if errors.Is(context.Cause(ctx), errDraining) {
				return p.localError(ctx, err)
			}
			trailer, err := statusForCaller(err, cs.Trailer())
			ss.SetTrailer(trailer)
			return err
		}
		if t != nil {
			t.response(f)
		}
		err := ss.SendMsg(f)
		f.free()
		if err != nil {
			return err
		}
	}
}

// localError is the status of a call that ended on our side of the runtime.
func (p *Proxy) localError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errDraining) {
		return status.Error(codes.Unavailable, errDraining.Error())
	}
	return err
}

// pumpRequests moves the caller's messages to the runtime, first first, until
// the caller has no more. It ends with the caller's stream at the latest. An
// error means that the caller's side is broken; an upstream that ended early is
// none, its status comes by the other direction.
func pumpRequests(first *frame, ss grpc.ServerStream, cs grpc.ClientStream) error {
	f, filled := first, first != nil
	if f == nil {
		f = &frame{}
	}
	for ; ; filled = false {
		if !filled {
			if err := ss.RecvMsg(f); err != nil {
				if errors.Is(err, io.EOF) {
					return cs.CloseSend()
				}
				return err
			}
		}
		err := cs.SendMsg(f)
		f.free()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
