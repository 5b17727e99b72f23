package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

// Do asks the API server as the administrator. body and into are JSON, each may be
// nil; a PATCH is a strategic merge. An answer that is not 2xx is an error with its
// text.
func (p *ControlPlane) Do(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("lab: %s %s: %w", method, path, err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.URL+path, content)
	if err != nil {
		return fmt.Errorf("lab: %s %s: %w", method, path, err)
	}
	req.Header.Set("Authorization", "Bearer "+p.adminToken)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	client, done, err := p.client()
	if err != nil {
		return fmt.Errorf("lab: %s %s: %w", method, path, err)
	}
	defer done()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("lab: %s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("lab: %s %s: %s: %s", method, path, resp.Status, answer)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("lab: %s %s: %w", method, path, err)
	}
	return nil
}

// client trusts the API server's own certificate, which it makes at its first
// start. done closes its connections.
func (p *ControlPlane) client() (client *http.Client, done func(), err error) {
	ca, err := os.ReadFile(p.caFile())
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, nil, fmt.Errorf("%s: no certificate", p.caFile())
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections, nil
}
