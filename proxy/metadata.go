package proxy

import (
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	authorityHeader = ":authority"
	detailsHeader   = "grpc-status-details-bin"
)

// hopByHop tells the metadata that belongs to one connection only and is
// written anew by the next one.
func hopByHop(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "connection", "host",
		"grpc-accept-encoding", "grpc-encoding", "grpc-timeout",
		"grpc-message-type", "grpc-status", "grpc-message":
		return true
	}
	return strings.HasPrefix(key, ":")
}

// endToEnd takes the hop-by-hop keys out of md, which must be the caller's own,
// and returns it; what gRPC hands out is a copy always.
func endToEnd(md metadata.MD) metadata.MD {
	for k := range md {
		if hopByHop(k) {
			delete(md, k)
		}
	}
	return md
}

// contentSubtype is the part of the content-type behind "application/grpc+",
// empty if there is none.
func contentSubtype(md metadata.MD) string {
	for _, ct := range md["content-type"] {
		if rest, ok := strings.CutPrefix(ct, "application/grpc"); ok && rest != "" {
			return strings.ToLower(rest[1:])
		}
	}
	return ""
}

// statusForCaller turns the end of an upstream call into what our handler
// returns and the trailers it sets. The details travel as the very bytes the
// runtime sent, in the trailer: gRPC would encode them anew from the status.
func statusForCaller(err error, upstream metadata.MD) (metadata.MD, error) {
	st := status.Convert(err)
	trailer := endToEnd(upstream)
	raw := trailer.Get(detailsHeader)
	if len(raw) == 1 && !sameCode(raw[0], st.Code()) {
		// gRPC replaced the status because code and details contradict each
		// other; with the details kept, our caller would do so once more.
		delete(trailer, detailsHeader)
		raw = nil
	}
	if err == nil {
		return trailer, nil
	}
	if len(raw) == 0 && len(st.Proto().GetDetails()) > 0 {
		return trailer, err // made on this side, not received
	}
	return trailer, status.Error(st.Code(), st.Message())
}

// sameCode tells whether raw, if it is a google.rpc.Status at all, has this code.
func sameCode(raw string, code codes.Code) bool {
	var s spb.Status
	if proto.Unmarshal([]byte(raw), &s) != nil {
		return true // gRPC ignores it, and it is the caller's to look at
	}
	return codes.Code(s.GetCode()) == code
}
