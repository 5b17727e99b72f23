package proxy

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// frame is one message as it came from the wire, in gRPC's own reference
// counted buffers. Whoever holds a frame holds one reference and ends it with
// free.
type frame struct {
	data mem.BufferSlice
}

// bytes is the content in one piece, to be read only and only before free.
func (f *frame) bytes() []byte {
	if len(f.data) == 1 {
		return f.data[0].ReadOnlyData()
	}
	return f.data.Materialize()
}

func (f *frame) free() {
	f.data.Free()
	f.data = nil
}

// replace gives f another content, which must not be written to any more.
func (f *frame) replace(b []byte) {
	f.data.Free()
	f.data = mem.BufferSlice{mem.SliceBuffer(b)}
}

// rawCodec passes frames through. Its name becomes the content-subtype of the
// call it is used for: it is the caller's own, and empty if the caller had none,
// so that the runtime sees the content-type it would see without us.
type rawCodec struct {
	name string
}

// Marshal implements encoding.CodecV2. gRPC frees the reference it gets.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("raw codec cannot encode a %T", v)
	}
	f.data.Ref()
	return f.data, nil
}

// Unmarshal implements encoding.CodecV2. gRPC frees data when this returns, so
// that the frame needs a reference of its own.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("raw codec cannot decode into a %T", v)
	}
	data.Ref()
	f.data = data
	return nil
}

// Name implements encoding.CodecV2.
func (c rawCodec) Name() string { return c.name }
