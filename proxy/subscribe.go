package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// ErrStreamEnded is what Subscribe returns when the proxy ended the stream.
var ErrStreamEnded = errors.New("event stream ended")

// Subscribe reads the events of the proxy whose events socket is at path and
// calls handle for each, "hello" first, until ctx ends or the stream does. It
// always returns an error: ctx's, ErrStreamEnded, or why there is no stream.
func Subscribe(ctx context.Context, path string, handle func(Event)) error {
	body, err := get(ctx, path, "/v1/events")
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	in := json.NewDecoder(body)
	for {
		var e Event
		if err := in.Decode(&e); err != nil {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return ErrStreamEnded
			}
			return fmt.Errorf("events of %s: %w", path, err)
		}
		handle(e)
	}
}

// FetchStatus asks the proxy whose events socket is at path for its status.
func FetchStatus(ctx context.Context, path string) (Status, error) {
	var s Status
	body, err := get(ctx, path, "/v1/status")
	if err != nil {
		return s, err
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&s); err != nil {
		return s, fmt.Errorf("status of %s: %w", path, err)
	}
	return s, nil
}

// get opens one connection for one request.
func get(ctx context.Context, path, url string) (io.ReadCloser, error) {
	return askService(ctx, path, http.MethodGet, url, nil)
}

// askService makes one request on a connection of its own.
func askService(ctx context.Context, path, method, url string, body io.Reader) (io.ReadCloser, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://proxy"+url, body)
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", path, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	const most = 4096
	text, _ := io.ReadAll(io.LimitReader(resp.Body, most)) // the status alone says enough
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusConflict {
		return nil, fmt.Errorf("%w: %s", ErrImageWanted, strings.TrimPrefix(strings.TrimSpace(string(text)), ErrImageWanted.Error()+": "))
	}
	return nil, fmt.Errorf("request to %s: %s", path, resp.Status)
}
