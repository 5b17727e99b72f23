package cri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// MaxMessageSize is the largest message in bytes we send or accept. kubelet
	// accepts 16 MiB, so that we are never the narrower part.
	MaxMessageSize = 64 << 20
	// StreamWindow and ConnWindow are the HTTP/2 flow control windows in bytes.
	// They are static: a reader that stops costs at most this much.
	StreamWindow = 1 << 20
	ConnWindow   = 4 << 20
	// maxHeaderList is what grpc-go used before it lowered its default; the
	// runtimes in the field still accept that much.
	maxHeaderList = 16 << 20

	backoffBase    = 50 * time.Millisecond
	backoffMax     = time.Second
	connectTimeout = time.Second
	idleRetry      = time.Second
)

// Target is what to hand to grpc.NewClient together with DialOptions: the
// address is in the dialer, and the authority is "localhost", as kubelet's is.
const Target = "passthrough:///localhost"

// DialOptions are the options of a connection to the runtime: 64 MiB messages,
// static windows, no retries, no idle timeout, re-dialling after 50 ms to 1 s.
// dialed, if not nil, learns the outcome of every attempt to dial.
func DialOptions(e Endpoint, dialed func(error)) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := DialSocket(ctx, e)
			if dialed != nil {
				dialed(err)
			}
			return conn, err
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessageSize),
			grpc.MaxCallSendMsgSize(MaxMessageSize),
		),
		grpc.WithStaticStreamWindowSize(StreamWindow),
		grpc.WithStaticConnWindowSize(ConnWindow),
		grpc.WithMaxHeaderListSize(maxHeaderList),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(0),
		grpc.WithUserAgent("cri-evictd"),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: backoffBase, Multiplier: 1.6, Jitter: 0.2, MaxDelay: backoffMax},
			MinConnectTimeout: connectTimeout,
		}),
	}
}

// DialSocket connects to the socket. An error tells, where access is denied, who
// may.
func DialSocket(ctx context.Context, e Endpoint) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", e.Path)
	if err != nil {
		return nil, explainDial(e, err)
	}
	return conn, nil
}

// explainDial says, where access is denied, whose socket it is and who we are:
// without that the reader of the log has to guess.
func explainDial(e Endpoint, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	owner := "its owner cannot be read either"
	if fi, statErr := os.Stat(e.Path); statErr == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			owner = fmt.Sprintf("it belongs to uid %d gid %d and has mode %#o", st.Uid, st.Gid, fi.Mode().Perm())
		}
	}
	return fmt.Errorf("no access to %s as uid %d gid %d: %s: %w", e.Path, os.Geteuid(), os.Getegid(), owner, err)
}

// WatchConn keeps cc connected (gRPC would stay idle after the loss of a
// connection until the next call) and reports each state it takes to visit. It
// returns when ctx ends or cc is closed.
func WatchConn(ctx context.Context, cc *grpc.ClientConn, visit func(connectivity.State)) {
	for {
		state := cc.GetState()
		switch state {
		case connectivity.Shutdown:
			visit(state)
			return
		case connectivity.Idle:
			cc.Connect()
		}
		visit(state)
		for !waitForChange(ctx, cc, state) {
			if ctx.Err() != nil {
				return
			}
			if state == connectivity.Idle {
				cc.Connect()
			}
		}
	}
}

// waitForChange waits for a state other than this one, but no longer than
// idleRetry: a connection that was idle, connected and idle again between the
// look at its state and the wait seems not to have changed, and would stay idle.
func waitForChange(ctx context.Context, cc *grpc.ClientConn, state connectivity.State) bool {
	ctx, cancel := context.WithTimeout(ctx, idleRetry)
	defer cancel()
	return cc.WaitForStateChange(ctx, state)
}
