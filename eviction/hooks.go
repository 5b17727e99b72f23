package eviction

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Hooks is what is asked of the runtime beyond stopping.
type Hooks interface {
	// Exited says whether the runtime knows that a container has ended.
	Exited(ctx context.Context, id string) (bool, error)
	// ContainerAnnotations returns what kubelet wrote on a container.
	ContainerAnnotations(ctx context.Context, id string) (map[string]string, error)
	// Exec runs a command in a container and waits for its end, for timeout
	// seconds at most. A command that fails is an error.
	Exec(ctx context.Context, id string, command []string, timeout int64) error
	// PodIP is the sandbox's first address; empty on the host's network.
	PodIP(ctx context.Context, sandboxID string) (string, error)
}

// HookReport says how a preStop hook went.
type HookReport struct {
	Container string        `json:"container"`
	Kind      string        `json:"kind,omitempty"` // exec, httpGet or sleep
	Took      time.Duration `json:"took"`           // ns
	Error     string        `json:"error,omitempty"`
}

// askTimeout bounds the questions about a container before it is stopped.
const askTimeout = 2 * time.Second

// runHook runs a preStop hook until it or ctx ends.
func runHook(ctx context.Context, rt Hooks, h *hook, containerID, sandboxID string, left time.Duration) error {
	switch {
	case h.exec != nil:
		if err := rt.Exec(ctx, containerID, h.exec, seconds(left)); err != nil {
			return fmt.Errorf("exec: %w", err)
		}
		return nil
	case h.http != nil:
		return h.http.run(ctx, rt, sandboxID)
	}
	timer := time.NewTimer(h.sleep)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// hookBody is how much of an answer is read, as kubelet's lifecycle handlers do.
const hookBody = 10 << 10

func (h *httpHook) run(ctx context.Context, rt Hooks, sandboxID string) error {
	ip := ""
	if h.host == "" && sandboxID != "" {
		var err error
		if ip, err = rt.PodIP(ctx, sandboxID); err != nil {
			return fmt.Errorf("httpGet: address of the pod: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url(ip), nil)
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	req.Header.Set("User-Agent", "cri-evictd")
	for i, name := range h.names {
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = h.values[i]
			continue
		}
		req.Header.Add(name, h.values[i])
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		// As kubelet: the pod's certificate is nobody's business here.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	client := http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != via[0].URL.Hostname() || len(via) >= 10 {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	_, err = io.CopyN(io.Discard, resp.Body, hookBody)
	_ = resp.Body.Close() // read only; nothing can be lost
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("httpGet: reading the answer: %w", err)
	}
	return nil
}

// seconds rounds up: a timeout that is cut short would take grace away.
func seconds(d time.Duration) int64 {
	return int64((max(d, 0) + time.Second - 1) / time.Second)
}
