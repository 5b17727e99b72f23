package rawh2

import "encoding/binary"

const prefixLen = 5 // gRPC's: a flag byte and the length

// Message is one gRPC message as on the wire.
type Message struct {
	Compressed bool
	Payload    []byte
}

// Encode puts gRPC's prefix before a payload.
func Encode(m Message) []byte {
	b := make([]byte, prefixLen, prefixLen+len(m.Payload))
	if m.Compressed {
		b[0] = 1
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(m.Payload)))
	return append(b, m.Payload...)
}

// Messages cuts the contents of DATA frames into messages; rest is what does not
// make a whole one.
func Messages(data []byte) (out []Message, rest []byte) {
	for len(data) >= prefixLen {
		n := int(binary.BigEndian.Uint32(data[1:prefixLen]))
		if len(data)-prefixLen < n {
			break
		}
		out = append(out, Message{Compressed: data[0] == 1, Payload: data[prefixLen : prefixLen+n]})
		data = data[prefixLen+n:]
	}
	return out, data
}
