// Package kubeletdiff drives kubelet's own eviction manager (Kubernetes 1.37.2,
// pkg/kubelet/eviction) and our engine over the same made-up node, in virtual
// time, and compares what they do. Whenever ours takes a pod, kubelet makes a
// pass over the same world and has to take one too: a pod that its order does not
// tell from ours, of the same threshold and with the same grace. Whenever kubelet
// takes one, ours has to follow. At rest both report the same node conditions.
//
// Kubelet's passes change nothing: its victims live on and the garbage it collects
// is back after the pass, so that both sides stay in one world in which ours acts.
// Where kubelet takes one of several thresholds by the order of a map it is asked
// again until it takes the one that ours acts on. Departures with a switch
// (eviction.AsKubelet and its neighbours) are off; the few without one are told
// apart by what kubelet does, and counted.
//
// It is a module of its own, so that the product does not depend on
// k8s.io/kubernetes.
package kubeletdiff
