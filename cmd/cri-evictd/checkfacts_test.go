package main

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pods "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

// noPods is a Pods API that has no pod, and says so with this code.
type noPods struct {
	pods.UnimplementedPodsServer
	code codes.Code
}

func (p noPods) GetPod(context.Context, *pods.GetPodRequest) (*pods.GetPodResponse, error) {
	return nil, status.Error(p.code, "pod not found")
}

func TestCheckOfPodFacts(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	socket := n.path("pods.sock")
	config := "podsAPISocket: " + socket + "\n"
	_, fs := n.check(n.config(config))
	expect(t, n, fs, levelWarning, "pod facts", "kubelet's Pods API: stat $DIR/pods.sock: no such file or directory; without it (kubelet 1.37) or a kubeconfig priorities are unknown")
	_, fs = n.check(n.config(config + "kubeconfig: /k\n"))
	expect(t, n, fs, levelOK, "pod facts", "no such file or directory; the API server's watch takes its place")

	for code, want := range map[codes.Code]struct{ level, text string }{
		codes.NotFound:           {levelOK, "$DIR/pods.sock: priorities and requests are exact"},
		codes.FailedPrecondition: {levelWarning, "priorities are unknown"},
	} {
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		pods.RegisterPodsServer(s, noPods{code: code})
		go func() { _ = s.Serve(l) }() // ends with Stop
		_, fs = n.check(n.config(config))
		expect(t, n, fs, want.level, "pod facts", want.text)
		s.Stop()
	}
}
