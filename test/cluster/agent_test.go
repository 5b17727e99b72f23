package cluster

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Without the proxy nothing keeps kubelet from starting the pod again but that it
// is told in time.
func evictedWithoutTheProxy(s *stage) {
	s.restartKubelet(map[string]any{"containerRuntimeEndpoint": "unix://" + s.ctd.Socket, "evictionHard": onlyMemory("0%"), "kernelMemcgNotification": nil})
	if err := s.proxy.stop(); err != nil {
		s.t.Fatal(err)
	}
	s.evictor(policy{pods: s.podsThreshold(), noProxy: true})
	for i := range times(s.t, 20) {
		s.t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			s := s.in(t)
			log := s.logSize()
			pod := s.create(hog(fmt.Sprint("hog-", i), v1.RestartPolicyAlways))
			s.awaitEvicted(pod, killed)
			s.audit(pod, killed, log)
		})
	}
	s.mustBeUntouched()
}
