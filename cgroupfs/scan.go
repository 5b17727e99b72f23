package cgroupfs

import (
	"bytes"
	"math"
)

// absurdFrom is where a byte count cannot be true any more: 4 EiB. cgroup v1
// also writes its "no limit" above it.
const absurdFrom = uint64(1) << 62

// parseUint reads a whole field of decimal digits. Signs, blanks, an empty
// field and numbers beyond 64 bits are refused: none of them is a counter.
func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 {
		return 0, false
	}
	var v uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		d := uint64(c - '0')
		if v > (math.MaxUint64-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// parseBytes is parseUint for a byte count of a whole one-value file or field.
func parseBytes(path, field string, b []byte) (uint64, error) {
	b = trimEnd(b)
	v, ok := parseUint(b)
	if !ok {
		return 0, broken(path, field, b, errNotNumber)
	}
	if v >= absurdFrom {
		return 0, broken(path, field, b, errAbsurd)
	}
	return v, nil
}

// trimEnd drops one line end.
func trimEnd(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte{'\n'})
	return bytes.TrimSuffix(b, []byte{'\r'})
}

// nextLine splits off the first line. whole is false for a last line without
// its newline: kernel files always end in one, so the text was cut.
func nextLine(b []byte) (line, rest []byte, whole bool) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil, false
	}
	return bytes.TrimSuffix(b[:i], []byte{'\r'}), b[i+1:], true
}

// nextWord splits off the first word of a line.
func nextWord(b []byte) (word, rest []byte) {
	start := 0
	for start < len(b) && isBlank(b[start]) {
		start++
	}
	end := start
	for end < len(b) && !isBlank(b[end]) {
		end++
	}
	return b[start:end], b[end:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
