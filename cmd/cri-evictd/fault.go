//go:build !evictdfault

package main

// faultBetween is nil in every build that is meant to be used.
func faultBetween() func() { return nil }
