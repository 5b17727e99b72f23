package lab

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// controlPlaneReady bounds the start of etcd and of the API server; 6 s on an
// idle machine.
const controlPlaneReady = 3 * time.Minute

// ControlPlaneOptions says which API server to start and where.
type ControlPlaneOptions struct {
	Tools KubernetesTools
	// Dir is an existing folder of the caller, see NewScratch; everything goes
	// into its subfolder "cp".
	Dir string
	// Nodes are the names that have a node's identity, see NodeKubeconfig.
	Nodes []string
	Log   io.Writer // progress lines; nil: none
}

// ControlPlane is etcd and kube-apiserver on loopback, with the authorizers Node
// and RBAC and with NodeRestriction. There is no scheduler and no controller:
// pods are created with spec.nodeName, and nothing but kubelet removes them.
type ControlPlane struct {
	// URL of the API server.
	URL string
	// EtcdLog and APIServerLog are where the output goes.
	EtcdLog, APIServerLog string

	opts       ControlPlaneOptions
	dir        string
	etcd       *program
	apiserver  *program
	etcdURL    string
	nodeTokens map[string]string
	adminToken string
}

// StartControlPlane returns when the API server is ready. ctx bounds the start
// only; both live until Stop. After an error neither runs.
func StartControlPlane(ctx context.Context, opts ControlPlaneOptions) (*ControlPlane, error) {
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	dir, err := realPath(opts.Dir)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	p := &ControlPlane{opts: opts, dir: filepath.Join(dir, "cp"), nodeTokens: map[string]string{}, adminToken: rand.Text()}
	p.etcdURL = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	p.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	p.EtcdLog, p.APIServerLog = filepath.Join(p.dir, "etcd.log"), filepath.Join(p.dir, "apiserver.log")
	if err := p.prepare(); err != nil {
		return nil, err
	}
	p.etcd = &program{
		name: "etcd", path: opts.Tools.Etcd, dir: p.dir, logFile: p.EtcdLog, ready: controlPlaneReady,
		args: []string{
			"--data-dir=" + filepath.Join(p.dir, "etcd"), "--name=lab", "--unsafe-no-fsync",
			"--listen-client-urls=" + p.etcdURL, "--advertise-client-urls=" + p.etcdURL,
			"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=lab=" + peerURL,
		},
	}
	p.apiserver = &program{
		name: "kube-apiserver", path: opts.Tools.APIServer, dir: p.dir, logFile: p.APIServerLog, ready: controlPlaneReady,
		args: []string{
			"--etcd-servers=" + p.etcdURL, "--cert-dir=" + filepath.Join(p.dir, "certs"),
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]), "--endpoint-reconciler-type=none",
			"--token-auth-file=" + filepath.Join(p.dir, "tokens.csv"), "--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount",
			"--service-account-key-file=" + filepath.Join(p.dir, "sa.pub"), "--service-account-signing-key-file=" + filepath.Join(p.dir, "sa.key"),
			"--service-account-issuer=https://lab.invalid", "--service-cluster-ip-range=10.0.0.0/24", "--profiling=false",
		},
	}
	begun := time.Now()
	if err := p.etcd.start(ctx, p.etcdReady); err != nil {
		return nil, err
	}
	if err := p.StartAPIServer(ctx); err != nil {
		return nil, errors.Join(err, p.etcd.stop())
	}
	fmt.Fprintf(opts.Log, "lab: kube-apiserver %s is ready after %.1f s: %s\n", opts.Tools.Version, time.Since(begun).Seconds(), p.URL)
	return p, nil
}

// prepare writes tokens and the key for service accounts.
func (p *ControlPlane) prepare() error {
	if err := mkdirs(p.dir, filepath.Join(p.dir, "certs")); err != nil {
		return err
	}
	tokens := fmt.Sprintf("%s,admin,1,\"system:masters\"\n", p.adminToken)
	for i, node := range p.opts.Nodes {
		p.nodeTokens[node] = rand.Text()
		tokens += fmt.Sprintf("%s,system:node:%s,%d,\"system:nodes\"\n", p.nodeTokens[node], node, i+2)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("lab: service account key: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("lab: service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("lab: service account key: %w", err)
	}
	return writeFiles(p.dir, map[string][]byte{
		"tokens.csv": []byte(tokens),
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
	})
}

func (p *ControlPlane) etcdReady(ctx context.Context) error {
	return getOK(ctx, http.DefaultClient, p.etcdURL+"/readyz", "")
}

// StartAPIServer starts the API server again, at the same address, and returns
// when it is ready.
func (p *ControlPlane) StartAPIServer(ctx context.Context) error {
	return p.apiserver.start(ctx, func(ctx context.Context) error {
		client, done, err := p.client()
		if err != nil {
			return err
		}
		defer done()
		if err := getOK(ctx, client, p.URL+"/readyz", p.adminToken); err != nil {
			return err
		}
		return getOK(ctx, client, p.URL+"/api/v1/namespaces/default", p.adminToken)
	})
}

// StopAPIServer ends the API server; etcd keeps what it knows.
func (p *ControlPlane) StopAPIServer() error { return p.apiserver.stop() }

// Stop ends the API server and etcd. The folder goes with the caller's.
func (p *ControlPlane) Stop() error { return errors.Join(p.apiserver.stop(), p.etcd.stop()) }

// Pids are the processes that run.
func (p *ControlPlane) Pids() []int {
	var pids []int
	for _, prog := range []*program{p.etcd, p.apiserver} {
		if pid := prog.pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// caFile is what the API server signed its own certificate with.
func (p *ControlPlane) caFile() string { return filepath.Join(p.dir, "certs", "apiserver.crt") }

// AdminKubeconfig writes a kubeconfig that may do everything.
func (p *ControlPlane) AdminKubeconfig() (string, error) {
	return p.kubeconfig("admin", p.adminToken)
}

// NodeKubeconfig writes a kubeconfig with the identity system:node:<name>, which
// is exactly kubelet's. The name is one of ControlPlaneOptions.Nodes.
func (p *ControlPlane) NodeKubeconfig(name string) (string, error) {
	token, ok := p.nodeTokens[name]
	if !ok {
		return "", fmt.Errorf("lab: the control plane was started without a node %q", name)
	}
	return p.kubeconfig("node-"+name, token)
}

func (p *ControlPlane) kubeconfig(name, token string) (string, error) {
	path := filepath.Join(p.dir, name+".kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: lab
  cluster: {server: %q, certificate-authority: %q}
users:
- name: lab
  user: {token: %q}
contexts:
- name: lab
  context: {cluster: lab, user: lab}
current-context: lab
`, p.URL, p.caFile(), token)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	return path, nil
}

// getOK fails unless a GET is answered with 200.
func getOK(ctx context.Context, client *http.Client, url, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end or thrown away
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", url, resp.Status, bytes.TrimSpace(body))
	}
	return nil
}
