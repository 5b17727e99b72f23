// Package fakecri is a CRI runtime for tests: it serves both services on a real
// unix socket, keeps sandboxes, containers and images in memory, records every
// call, and can be told to be slow, to fail, to hang, to crash, or to answer
// with given bytes. It is for what a real containerd cannot be made to do.
package fakecri
