// Package critest pins what the critest program is built from; it has no code.
//
//	go test -c -o critest sigs.k8s.io/cri-tools/cmd/critest
//
// The imports are those of that test program: with them, go.mod and go.sum name
// every module it needs.
package critest

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
