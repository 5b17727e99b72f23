package fakecri

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Fault changes how calls of one method are answered. The parts that are set
// act in the order of the fields.
type Fault struct {
	// Times is how many calls it is for; 0 is all of them.
	Times int
	// Do runs first, with the request; an error of it is the answer.
	Do func(ctx context.Context, req []byte) error
	// Wait delays until it is closed (or the call has ended).
	Wait <-chan struct{}
	// Delay waits that long (or until the call has ended).
	Delay time.Duration
	// Hang waits for the end of the call.
	Hang bool
	// Crash ends the server as Server.Crash does.
	Crash bool
	// Header is sent with the answer, or alone.
	Header metadata.MD
	// Trailer is sent with the status.
	Trailer metadata.MD
	// Err is the answer; may carry details.
	Err error
	// Raw are the messages of the answer, as bytes, instead of the normal ones.
	Raw [][]byte
	// Huge is the size in bytes of one more message: a valid one of any type,
	// with a single field that no API version has.
	Huge int
	// Cut breaks every connection of the server: after Raw, half a stream. The
	// server stays up. gRPC writes messages a moment after they were sent, so
	// that a test that wants them to arrive closes CutAfter when they have.
	Cut      bool
	CutAfter <-chan struct{}
	// Empty answers with OK and no message at all.
	Empty bool
	// Handle answers by itself.
	Handle func(req []byte, ss grpc.ServerStream) error
	// ErrAfter is returned after the normal work was done: a lost answer.
	ErrAfter error
}

// Inject adds a fault for a method: "Version", or the full
// "/runtime.v1.RuntimeService/Version", or "*" for all. Faults of one method
// with Times are used up one after the other.
func (s *Server) Inject(method string, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[method] = append(s.faults[method], &f)
}

// Heal removes the faults of a method.
func (s *Server) Heal(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.faults, method)
}

// fault finds the fault for a call and counts it.
func (s *Server) fault(full string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	short := full[strings.LastIndexByte(full, '/')+1:]
	for _, key := range []string{full, short, "*"} {
		list := s.faults[key]
		if len(list) == 0 {
			continue
		}
		f := *list[0]
		if f.Times > 0 {
			list[0].Times--
			if list[0].Times == 0 {
				s.faults[key] = slices.Delete(list, 0, 1)
			}
		}
		return &f
	}
	return nil
}

// apply carries out the fault; done says that the call is answered.
func (f *Fault) apply(s *Server, ss grpc.ServerStream, req []byte) (done bool, err error) {
	ctx := ss.Context()
	if f.Do != nil {
		if err := f.Do(ctx, req); err != nil {
			return true, err
		}
	}
	if f.Wait != nil {
		if err := wait(ctx, f.Wait); err != nil {
			return true, err
		}
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return true, status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.Hang {
		<-ctx.Done()
		return true, ctx.Err()
	}
	if f.Crash {
		s.Crash()
		return true, ctx.Err()
	}
	if f.Header != nil {
		if err := ss.SendHeader(f.Header); err != nil {
			return true, err
		}
	}
	ss.SetTrailer(f.Trailer)
	for _, m := range f.Raw {
		raw := Raw(m)
		if err := ss.SendMsg(&raw); err != nil {
			return true, err
		}
	}
	if f.Huge > 0 {
		raw := hugeMessage(f.Huge)
		if err := ss.SendMsg(&raw); err != nil {
			return true, err
		}
	}
	switch {
	case f.Cut:
		if f.CutAfter != nil {
			if err := wait(ctx, f.CutAfter); err != nil {
				return true, err
			}
		}
		s.Cut()
		return true, status.Error(codes.Unavailable, "cut")
	case f.Err != nil:
		return true, f.Err
	case f.Raw != nil || f.Empty || f.Huge > 0:
		return true, nil
	case f.Handle != nil:
		return true, f.Handle(req, ss)
	}
	return false, nil
}

// hugeField is a field number no message of the API has.
const hugeField = 7777

// hugeMessage is a message of size bytes, of at least 16; a few sizes, such as
// 132, are not possible and give one byte less.
func hugeMessage(size int) Raw {
	b := protowire.AppendTag(nil, hugeField, protowire.BytesType)
	// The length of the length depends on what is left.
	rest := size - len(b)
	for n := rest - 1; n >= 0; n-- {
		if protowire.SizeBytes(n) <= rest {
			return append(protowire.AppendVarint(b, uint64(n)), make([]byte, n)...)
		}
	}
	return b[:0]
}
