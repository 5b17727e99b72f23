package apiwatch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// callers notes who asked: the serial number of the client certificate and the
// Authorization header.
type callers struct {
	mu      sync.Mutex
	serials []int64
	tokens  []string
}

func (c *callers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	for _, cert := range r.TLS.PeerCertificates {
		c.serials = append(c.serials, cert.SerialNumber.Int64())
	}
	c.tokens = append(c.tokens, r.Header.Get("Authorization"))
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
}

// serveTLS returns a server that takes client certificates of any issuer.
func serveTLS(t *testing.T) (*httptest.Server, *callers) {
	t.Helper()
	c := &callers{}
	s := httptest.NewUnstartedServer(c)
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, c
}

// writeCertificate writes certificate and key into one file, as kubelet does.
func writeCertificate(t *testing.T, path string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
	if err := os.WriteFile(path, both, 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeKubeconfig writes one for s with this user.
func writeKubeconfig(t *testing.T, s *httptest.Server, user string) string {
	t.Helper()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: %s}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, s.URL, ca, user)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRotatedCertificateIsUsed(t *testing.T) {
	s, asked := serveTLS(t)
	current := filepath.Join(t.TempDir(), "kubelet-client-current.pem")
	writeCertificate(t, current, 1)
	pods, err := Connect(writeKubeconfig(t, s, fmt.Sprintf("{client-certificate: %q, client-key: %q}", current, current)), "test")
	if err != nil {
		t.Fatal(err)
	}
	list := func() {
		t.Helper()
		if _, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list()
	writeCertificate(t, current, 2)
	// client-go looks at the file at most once a second, and closes connections
	// that use the old one within five minutes.
	for end := time.Now().Add(time.Minute); !slices.Contains(asked.serials, 2); {
		s.CloseClientConnections()
		list()
		if time.Now().After(end) {
			t.Fatalf("came with certificates %v for a minute, want 2 after the rotation", asked.serials)
		}
	}
}

func TestExecPluginIsRun(t *testing.T) {
	s, asked := serveTLS(t)
	plugin := filepath.Join(t.TempDir(), "plugin")
	script := "#!/bin/sh\necho '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"from-plugin\"}}'\n"
	if err := os.WriteFile(plugin, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	pods, err := Connect(writeKubeconfig(t, s, fmt.Sprintf(
		"{exec: {apiVersion: client.authentication.k8s.io/v1, command: %q, interactiveMode: Never}}", plugin)), "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"Bearer from-plugin"}; !slices.Equal(asked.tokens, want) {
		t.Errorf("came with %q, want %q", asked.tokens, want)
	}
}

func TestNoKubeconfig(t *testing.T) {
	if _, err := Connect(filepath.Join(t.TempDir(), "none"), "test"); err == nil {
		t.Error("a kubeconfig that is not there was taken")
	}
}
