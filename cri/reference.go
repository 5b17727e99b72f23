package cri

import (
	"strings"

	"github.com/distribution/reference"
)

// CanonicalImage returns the form in which two names of an image can be compared:
// with the registry and the tag that are meant where none is written, and without
// the tag where there is a digest as well, as the runtimes keep them. An ID, and
// what is no reference at all, is returned as it is.
func CanonicalImage(name string) string {
	named, ok := parseImage(name)
	if !ok {
		return name
	}
	return named.String()
}

// FamiliarImage is the short form people write, such as app:1 for the canonical
// docker.io/library/app:1. What has none is returned as it is.
func FamiliarImage(name string) string {
	named, ok := parseImage(name)
	if !ok {
		return name
	}
	return reference.FamiliarString(named)
}

// ImageRepository is the canonical name without tag and digest; empty for an ID
// and for what is no reference.
func ImageRepository(name string) string {
	named, ok := parseImage(name)
	if !ok {
		return ""
	}
	return reference.TrimNamed(named).String()
}

// ImageRegistry is the host (and port) that an image comes from; empty for an ID
// and for what is no reference.
func ImageRegistry(name string) string {
	named, ok := parseImage(name)
	if !ok {
		return ""
	}
	return reference.Domain(named)
}

// parseImage reads a reference; ok is false for IDs.
func parseImage(name string) (reference.Named, bool) {
	if _, hex, ok := strings.Cut(name, ":"); ok && strings.HasPrefix(name, "sha256:") && isHash(hex) {
		return nil, false
	}
	named, err := reference.ParseDockerRef(name)
	return named, err == nil
}

// isHash says whether s is a SHA-256 in hexadecimal digits.
func isHash(s string) bool {
	const length = 64
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}
