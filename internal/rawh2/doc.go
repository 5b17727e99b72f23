// Package rawh2 speaks gRPC's wire format as plain HTTP/2 frames, on either
// side, for tests that must see what two gRPC libraries would hide from each
// other: which header blocks there are, which of them ends the stream, how a
// stream was reset, how many bytes the windows let through. It checks nothing
// and adds nothing: what is sent is what the caller says.
package rawh2
