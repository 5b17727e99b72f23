// Package proxy stands between kubelet and the container runtime. It forwards
// every call of every service as raw frames, without knowing the API, and looks
// into a dozen messages only: to refuse the restart of a pod that is held, to
// explain an eviction in status answers, and to tell the evictor what starts and
// ends. Whatever goes wrong in that part, the call itself goes through.
package proxy
