package cri

import (
	"fmt"
	"path/filepath"
	"strings"
)

// MaxSocketPath is the longest path a unix socket can have on Linux: sun_path
// has 108 bytes, one of which is the terminating zero.
const MaxSocketPath = 107

// Endpoint is a unix socket a CRI server listens on.
type Endpoint struct {
	// Path is absolute and clean.
	Path string
}

// EndpointError says which endpoint is wrong, why, and what would be right.
type EndpointError struct {
	Field, Value, Reason string
}

// Error implements error.
func (e *EndpointError) Error() string {
	return fmt.Sprintf("%s: invalid endpoint %q: %s", e.Field, e.Value, e.Reason)
}

// ParseEndpoint reads an endpoint in one of its three spellings, which are
// equal: "unix:///p", "unix:/p" and "/p". field is the name of the option for
// the message; the error is an *EndpointError.
func ParseEndpoint(field, s string) (Endpoint, error) {
	bad := func(format string, args ...any) (Endpoint, error) {
		return Endpoint{}, &EndpointError{Field: field, Value: s, Reason: fmt.Sprintf(format, args...)}
	}
	path := s
	if rest, ok := strings.CutPrefix(s, "unix:"); ok {
		path = rest
		if after, ok := strings.CutPrefix(rest, "//"); ok {
			// unix://host/path has an authority, which means nothing here.
			path = after
			if after != "" && !strings.HasPrefix(after, "/") {
				return bad("there is no host in a unix address; write unix:///%s", after)
			}
		}
	} else if scheme, _, ok := strings.Cut(s, "://"); ok {
		return bad("scheme %q is not supported, only unix sockets are; write unix:///path/to/socket", scheme)
	}
	switch {
	case path == "":
		return bad("it is empty; write unix:///path/to/socket")
	case !strings.HasPrefix(path, "/"):
		return bad("the path must be absolute; write unix:///path/to/socket")
	case strings.ContainsRune(path, 0):
		return bad("the path contains a zero byte")
	}
	clean := filepath.Clean(path)
	switch {
	case clean == "/" || strings.HasSuffix(path, "/"):
		return bad("it names a directory; write unix:///path/to/socket")
	case len(clean) > MaxSocketPath:
		return bad("the path has %d bytes, the kernel allows at most %d; choose a shorter one", len(clean), MaxSocketPath)
	}
	return Endpoint{Path: clean}, nil
}

// String is the canonical spelling: "unix://" and the path.
func (e Endpoint) String() string { return "unix://" + e.Path }
