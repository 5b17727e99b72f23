//go:build evictdfault

package main

import (
	"os"
	"syscall"
)

// faultBetween lets a test end the process between intent and kill. Builds with
// this tag are for tests only.
func faultBetween() func() {
	if os.Getenv("EVICTD_FAULT") != "between-intent-and-kill" {
		return nil
	}
	return func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	}
}
