package main

import (
	"testing"

	"github.com/cri-evictd/cri-evictd/proxy"
)

func TestMethods(t *testing.T) {
	s := proxy.Status{Calls: []proxy.MethodCount{
		{Method: "/runtime.v1.RuntimeService/Version", Code: "OK", Count: 3},
		{Method: "/runtime.v1.RuntimeService/Version", Code: "Canceled", Count: 1},
		{Method: "/runtime.v1.ImageService/ListImages", Code: "OK", Count: 2},
		{Method: "/grpc.health.v1.Health/Check", Code: "Unimplemented", Count: 9},
	}}
	if names, calls := methods(s); names != 2 || calls != 6 {
		t.Errorf("%d methods, %d calls; want 2 and 6", names, calls)
	}
}
