package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
)

// probeTimeout bounds the one Version call made after each connection.
const probeTimeout = 5 * time.Second

// upstream is the one connection to the runtime all calls share.
type upstream struct {
	endpoint cri.Endpoint
	log      logrus.FieldLogger
	conn     *grpc.ClientConn
	ever     atomic.Bool
	// reached is closed when ever becomes true.
	reached chan struct{}
	// onReady is called, not concurrently, each time the connection is made.
	onReady func(first bool)

	mu      sync.Mutex
	dialErr string // last failure to dial, empty after a success
	runtime string // name and version, or what is wrong with it
	problem string
}

func newUpstream(e cri.Endpoint, log logrus.FieldLogger, buffers mem.BufferPool) (*upstream, error) {
	u := &upstream{endpoint: e, log: log.WithField("upstream", e.Path), reached: make(chan struct{})}
	options := append(cri.DialOptions(e, nil),
		experimental.WithBufferPool(buffers),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := cri.DialSocket(ctx, e)
			u.dialed(err)
			if err != nil {
				return nil, err
			}
			return bare(conn), nil
		}),
	)
	conn, err := grpc.NewClient(cri.Target, options...)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", e, err)
	}
	u.conn = conn
	return u, nil
}

// everConnected tells whether the runtime was ever there.
func (u *upstream) everConnected() bool { return u.ever.Load() }

// connected notes that it is.
func (u *upstream) connected() {
	if !u.ever.Load() && !u.ever.Swap(true) {
		close(u.reached)
	}
}

// dialed logs what changes: a runtime that is away for an hour is two lines.
func (u *upstream) dialed(err error) {
	text := ""
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return
		}
		text = err.Error()
	}
	u.mu.Lock()
	changed := text != u.dialErr
	u.dialErr = text
	u.mu.Unlock()
	if changed && err != nil {
		u.log.WithError(err).Error("cannot reach the runtime; calls fail or wait until it is there, dialling goes on")
	}
}

// watch keeps the connection up until ctx ends and waits for its probes.
func (u *upstream) watch(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	first := true
	cri.WatchConn(ctx, u.conn, func(s connectivity.State) {
		if s != connectivity.Ready {
			return
		}
		u.connected()
		u.log.Info("connected to the runtime")
		if u.onReady != nil {
			u.onReady(first)
		}
		first = false
		probes.Add(1)
		go func() {
			defer probes.Done()
			u.probe(ctx)
		}()
	})
}

// probe finds out who answers, to name a wrong socket instead of leaving that
// to kubelet's messages. Forwarding does not depend on it.
func (u *upstream) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	resp, err := runtimeapi.NewRuntimeServiceClient(u.conn).Version(ctx, &runtimeapi.VersionRequest{})
	name, problem := "", ""
	switch {
	case err == nil:
		name = resp.GetRuntimeName() + " " + resp.GetRuntimeVersion()
		u.log.WithField("runtime", name).Info("runtime answers")
	case status.Code(err) == codes.Unimplemented:
		problem = fmt.Sprintf("%s does not serve %s: is it the runtime's CRI socket?", u.endpoint, runtimeapi.RuntimeService_ServiceDesc.ServiceName)
		u.log.WithError(err).Error(problem + " Calls are forwarded all the same")
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return
	default:
		problem = fmt.Sprintf("%s does not answer Version: %v", u.endpoint, err)
		u.log.WithError(err).Warn("runtime does not answer Version")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runtime, u.problem = name, problem
}

// UpstreamStatus is the state of the connection to the runtime.
type UpstreamStatus struct {
	Endpoint      string `json:"endpoint"`
	State         string `json:"state"` // of gRPC: IDLE, CONNECTING, READY, TRANSIENT_FAILURE, SHUTDOWN
	EverConnected bool   `json:"everConnected"`
	Runtime       string `json:"runtime,omitempty"`   // name and version
	Problem       string `json:"problem,omitempty"`   // a socket that does not speak CRI v1
	DialError     string `json:"dialError,omitempty"` // last failure, empty when connected
}

func (u *upstream) status() UpstreamStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	return UpstreamStatus{
		Endpoint:      u.endpoint.String(),
		State:         u.conn.GetState().String(),
		EverConnected: u.ever.Load(),
		Runtime:       u.runtime,
		Problem:       u.problem,
		DialError:     u.dialErr,
	}
}
