package cri

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one occurrence of a field on the wire.
type field struct {
	num    protowire.Number
	typ    protowire.Type
	varint uint64 // of a varint field
	bytes  []byte // payload of a length-delimited field
	start  int    // offset of the tag in the message
	value  int    // offset behind the tag
	end    int    // offset behind the field
}

// isBytes and isVarint compare number and wire type: a known number with
// another wire type is an unknown field, which is how generated code sees it.
func (f field) isBytes(n protowire.Number) bool {
	return f.num == n && f.typ == protowire.BytesType
}

func (f field) isVarint(n protowire.Number) bool {
	return f.num == n && f.typ == protowire.VarintType
}

// walk calls visit for every field of the top level of the message b, in wire
// order, unknown ones included.
func walk(b []byte, visit func(field) error) error {
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return fmt.Errorf("tag at offset %d: %w", at, protowire.ParseError(n))
		}
		f := field{num: num, typ: typ, start: at, value: at + n}
		rest := b[f.value:]
		switch typ {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(rest)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(rest)
		default:
			n = protowire.ConsumeFieldValue(num, typ, rest)
		}
		if n < 0 {
			return fmt.Errorf("field %d at offset %d: %w", num, at, protowire.ParseError(n))
		}
		f.end = f.value + n
		if err := visit(f); err != nil {
			return err
		}
		at = f.end
	}
	return nil
}

// addMapEntry decodes one entry of a map<string, string> into *m.
func addMapEntry(m *map[string]string, entry []byte) error {
	var key, value string
	err := walk(entry, func(f field) error {
		switch {
		case f.isBytes(1):
			key = string(f.bytes)
		case f.isBytes(2):
			value = string(f.bytes)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("map entry: %w", err)
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[key] = value
	return nil
}

// stringField returns field num of the message b, empty if it is not there.
func stringField(b []byte, num protowire.Number) (string, error) {
	var s string
	err := walk(b, func(f field) error {
		if f.isBytes(num) {
			s = string(f.bytes)
		}
		return nil
	})
	return s, err
}
