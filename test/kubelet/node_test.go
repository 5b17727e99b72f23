// Package kubelet holds the tests on a real kubelet: what is known of pods is
// what kubelet and the API server say.
package kubelet

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/internal/lab/labtest"
	"github.com/cri-evictd/cri-evictd/kube"
	"github.com/cri-evictd/cri-evictd/kube/allocated"
)

const (
	nodeName = "n1"
	mi       = 1 << 20
)

// node is a kubelet on a containerd of its own.
type node struct {
	*cluster // nil when it stands alone
	t        *testing.T
	ctd      *lab.Containerd
	kubelet  *lab.Kubelet
}

// scratch is a folder for everything; nothing of it may be left after the test.
func scratch(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: runs a real kubelet with real containers")
	}
	return labtest.Scratch(t)
}

// startNode starts containerd 2.4 and a kubelet, which stands alone without a
// kubeconfig.
func startNode(t *testing.T, dir, kubeconfig string) *node {
	t.Helper()
	return startNodeWith(t, dir, nil, lab.KubeletOptions{Node: nodeName, Kubeconfig: kubeconfig})
}

// startNodeWith is startNode with options for kubelet, which talks to the socket
// that front makes of the runtime's.
func startNodeWith(t *testing.T, dir string, front func(runtime string) string, opts lab.KubeletOptions) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute) // as in newCluster
	defer cancel()
	tools, err := lab.EnsureRuntime(ctx, testWriter{t}, lab.Current)
	if err != nil {
		t.Fatal(err)
	}
	opts.Binary, err = lab.EnsureKubelet(ctx, testWriter{t}, kubeletVersion())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t}
	n.ctd = labtest.Containerd(ctx, t, lab.ContainerdOptions{Tools: tools, Version: lab.Current, Dir: dir, Log: testWriter{t}})
	opts.Dir, opts.Runtime, opts.Log = dir, n.ctd.Socket, testWriter{t}
	if front != nil {
		opts.Runtime = front(n.ctd.Socket)
	}
	n.kubelet, err = lab.StartKubelet(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.kubelet.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			n.showLog()
		}
	})
	return n
}

// showLog prints the end of kubelet's log.
func (n *node) showLog() {
	b, err := os.ReadFile(n.kubelet.LogFile)
	if err != nil {
		n.t.Log(err)
		return
	}
	lines := strings.Split(string(b), "\n")
	n.t.Logf("kubelet's log ends with\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
}

// list returns kubelet's own list of its pods, as JSON.
func (n *node) list() []byte {
	n.t.Helper()
	b, err := n.kubelet.Get(n.t.Context(), "/pods")
	if err != nil {
		n.t.Fatal(err)
	}
	return b
}

// source runs one reader into a store of its own until the test ends.
func source(t *testing.T, run func(ctx context.Context, s *kube.Store)) *kube.Store {
	t.Helper()
	s := kube.NewStore(time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, s)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// following adds kubelet's file of allocated resources to a store.
func (n *node) following(s *kube.Store) *allocated.Reader {
	n.t.Helper()
	r := allocated.NewReader(n.kubelet.RootDir, s, time.Now, logger(n.t))
	source(n.t, func(ctx context.Context, _ *kube.Store) { r.Run(ctx, 200*time.Millisecond) })
	return r
}

// eventually waits for a condition with a deadline that a loaded machine can
// hold.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within %v", what, within)
}

// testWriter writes lines to the test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil { // after the end of the test Log panics
		w.t.Log(strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}

func logger(t *testing.T) logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(testWriter{t})
	return l
}
