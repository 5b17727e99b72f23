package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

// ErrNotRunning is returned when nobody answers on the admin socket.
var ErrNotRunning = errors.New("the daemon is not running")

// ErrNotFound is returned for a pod the daemon does not know.
var ErrNotFound = errors.New("not found")

// patience is how long the command line waits for an answer (design §12).
const patience = 2 * time.Second

// Client asks the daemon.
type Client struct {
	http   *http.Client
	socket string
}

// NewClient returns a client of the service on this socket.
func NewClient(socket cri.Endpoint) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket.Path)
	}
	return &Client{
		socket: socket.Path,
		http:   &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: patience},
	}
}

// Status asks for the daemon's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "/v1/status", nil, &s)
	return s, err
}

// Explain asks what would be decided now; pod may be empty, namespace/name or a
// UID.
func (c *Client) Explain(ctx context.Context, pod string) (Explanation, error) {
	var x Explanation
	q := url.Values{}
	if pod != "" {
		q.Set("pod", pod)
	}
	err := c.call(ctx, http.MethodGet, "/v1/explain", q, &x)
	return x, err
}

// PodFacts asks what is known of a pod that may be new to the node.
func (c *Client) PodFacts(ctx context.Context, uid string) (PodFacts, error) {
	var f PodFacts
	err := c.call(ctx, http.MethodGet, "/v1/podfacts", url.Values{"uid": {uid}}, &f)
	return f, err
}

// Holds lists the records of the holds file.
func (c *Client) Holds(ctx context.Context) (Holds, error) {
	var h Holds
	err := c.call(ctx, http.MethodGet, "/v1/holds", nil, &h)
	return h, err
}

// Release ends the holds of one pod, or of all when all is true.
func (c *Client) Release(ctx context.Context, pod string, all bool) (Holds, error) {
	q := url.Values{"pod": {pod}}
	if all {
		q = url.Values{"all": {"true"}}
	}
	var h Holds
	err := c.call(ctx, http.MethodPost, "/v1/holds/release", q, &h)
	return h, err
}

// GC asks what garbage collection would remove now.
func (c *Client) GC(ctx context.Context) (gc.Plan, error) {
	var p gc.Plan
	err := c.call(ctx, http.MethodGet, "/v1/gc", nil, &p)
	return p, err
}

// Arm makes the daemon act on a threshold that was met when it was loaded.
func (c *Client) Arm(ctx context.Context) (ArmResult, error) {
	var r ArmResult
	err := c.call(ctx, http.MethodPost, "/v1/arm", nil, &r)
	return r, err
}

// Pause makes the daemon evict nothing for d; 0 ends that.
func (c *Client) Pause(ctx context.Context, d time.Duration) (PauseResult, error) {
	var r PauseResult
	err := c.call(ctx, http.MethodPost, "/v1/pause", url.Values{"for": {d.String()}}, &r)
	return r, err
}

// call makes one request and decodes its answer into out.
func (c *Client) call(ctx context.Context, method, path string, q url.Values, out any) error {
	u := url.URL{Scheme: "http", Host: "admin", Path: path, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return fmt.Errorf("request to %s: %w", c.socket, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explainFailure(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end or of no use
	if resp.StatusCode != http.StatusOK {
		const most = 4096
		text, _ := io.ReadAll(io.LimitReader(resp.Body, most)) // the status alone says enough
		err := errors.New(strings.TrimSpace(string(text)))
		if resp.StatusCode == http.StatusNotFound {
			return fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		if late(err) {
			return c.explainFailure(err)
		}
		return fmt.Errorf("answer of %s: %w", c.socket, err)
	}
	return nil
}

// explainFailure says what the failure to connect means.
func (c *Client) explainFailure(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w: there is no socket %s (--admin-socket names another)", ErrNotRunning, c.socket)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody serves %s any more", ErrNotRunning, c.socket)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s: permission denied: run this as root or as the socket's group: %w", c.socket, err)
	}
	if late(err) {
		return fmt.Errorf("cri-evictd on %s did not answer within %s: %w", c.socket, patience, err)
	}
	return fmt.Errorf("asking %s: %w", c.socket, err)
}

// late says whether an answer did not come in time.
func late(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
