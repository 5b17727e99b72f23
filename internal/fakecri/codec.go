package fakecri

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// Raw is a message as its bytes. Send and receive a *Raw.
type Raw []byte

// Codec passes *Raw through and encodes everything else as protobuf. Subtype is
// the content-subtype of a client's calls, empty for plain "application/grpc".
type Codec struct {
	Subtype string
}

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	switch m := v.(type) {
	case *Raw:
		return mem.BufferSlice{mem.SliceBuffer(*m)}, nil
	case proto.Message:
		b, err := proto.Marshal(m)
		return mem.BufferSlice{mem.SliceBuffer(b)}, err
	}
	return nil, fmt.Errorf("cannot encode a %T", v)
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *Raw:
		*m = data.Materialize()
		return nil
	case proto.Message:
		return proto.Unmarshal(data.Materialize(), m)
	}
	return fmt.Errorf("cannot decode into a %T", v)
}

// Name implements encoding.CodecV2.
func (c Codec) Name() string { return c.Subtype }
