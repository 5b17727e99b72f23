// Package lab runs the real thing for the demo, the end-to-end tests and the
// benchmarks: a private containerd with its own root, state and socket, images
// made from one static Go binary, and pods as kubelet would create them.
//
// Nothing is installed or started on the host. Binaries come from Debian's
// packages (unpacked, not installed) and from Go modules, and are kept in a
// cache outside the work tree. Everything a Containerd creates can be found
// again from its directory alone, so that Cleanup also works after containerd
// was killed, and NewScratch can sweep what a killed test run left.
//
// Running containerd and pods needs root; Ensure does not.
package lab
