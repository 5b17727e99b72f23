// Package cri holds what the daemon itself needs to know of the container
// runtime interface: endpoints, a typed client, and tolerant decoding of single
// messages for the places that must never depend on a complete, matching copy
// of the API (the proxy sees messages of older and newer versions).
package cri
