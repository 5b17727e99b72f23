package kubelet

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// Names of the pods that something is done to in the middle of the passes.
const (
	gcDeleted = "deleted"
	// What has this in front loses its sandbox behind kubelet's back, twice.
	gcLosesSandbox = "lost-"
)

// gcFew is how many of gcPods a short run has.
const gcFew = 9

// gcPods are pods of every kind that a missing record could harm: kubelet takes
// what is not there for never started (facts/kubelet.md §6.8). The first gcFew have
// one of each of what kubelet decides by records.
func gcPods(node, suffix string) []*v1.Pod {
	always := v1.ContainerRestartPolicyAlways
	run := func(name string, args ...string) v1.Container {
		return v1.Container{
			Name: name, Image: lab.WorkloadImage, ImagePullPolicy: v1.PullNever, Args: args,
			// Its log is its message: lost with the record, or with the log.
			TerminationMessagePolicy: v1.TerminationMessageFallbackToLogsOnError,
		}
	}
	done := func(name string) v1.Container {
		return run(name, "alloc", "--total", "1Mi", "--rate", "0", "--hold=false")
	}
	fails := func(name string) v1.Container { return run(name, "no-such-command") }
	stays := func(name string) v1.Container { return run(name, "exit0") }
	sidecar := func(c v1.Container) v1.Container {
		c.RestartPolicy = &always
		return c
	}
	inits := func(c ...v1.Container) []v1.Container { return c }
	pod := func(name string, policy v1.RestartPolicy, init []v1.Container, containers ...v1.Container) *v1.Pod {
		p := bare(node, name+suffix)
		p.Spec.RestartPolicy, p.Spec.InitContainers, p.Spec.Containers = policy, init, containers
		return p
	}
	// It is killed whoever ends it first.
	killed := func(name string) v1.Container { return run(name, "ignore-term") }
	return []*v1.Pod{
		pod("crash-beside", v1.RestartPolicyAlways, nil, fails("main"), stays("steady")),
		pod(gcLosesSandbox+"always", v1.RestartPolicyAlways, inits(done("first"), done("second")), killed("steady")),
		pod(gcLosesSandbox+"onfailure", v1.RestartPolicyOnFailure, nil, done("done"), killed("steady")),
		pod("completed-onfailure", v1.RestartPolicyOnFailure, inits(done("first")), done("main")),
		pod("failed", v1.RestartPolicyNever, nil, fails("main")),
		pod("half-never", v1.RestartPolicyNever, nil, done("done"), fails("failed"), stays("steady")),
		pod("half-onfailure", v1.RestartPolicyOnFailure, nil, done("done"), fails("loops"), stays("steady")),
		pod("init-loops", v1.RestartPolicyAlways, inits(done("first"), fails("second")), stays("steady")),
		pod("sidecar-loops", v1.RestartPolicyAlways, inits(sidecar(fails("sidecar")), done("first")), stays("steady")),

		pod("crash-loop", v1.RestartPolicyAlways, nil, fails("main")),
		pod(gcLosesSandbox+"never", v1.RestartPolicyNever, nil, done("done"), killed("steady")),
		pod("completed", v1.RestartPolicyNever, nil, done("main")),
		pod("init", v1.RestartPolicyAlways, inits(done("first"), done("second")), stays("steady")),
		pod("init-never", v1.RestartPolicyNever, inits(done("first"), stays("second")), stays("steady")),
		pod("sidecar", v1.RestartPolicyAlways, inits(sidecar(stays("sidecar")), done("first")), fails("main")),
		pod("sidecar-never", v1.RestartPolicyNever, inits(sidecar(stays("sidecar")), done("first")), done("done"), stays("steady")),
		pod("sidecar-done", v1.RestartPolicyNever, inits(sidecar(stays("sidecar"))), done("done")),
		pod(gcDeleted, v1.RestartPolicyAlways, nil, fails("main"), stays("steady")),
	}
}

// underWay says whether a pod has begun, and one that is to lose its sandbox runs
// all it ever will.
func underWay(p *v1.Pod) bool {
	begun := false
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		begun = begun || s.ContainerID != ""
		if strings.HasPrefix(p.Name, gcLosesSandbox) && s.Name == "steady" {
			return s.State.Running != nil && p.Status.Phase == v1.PodRunning
		}
	}
	return begun
}
