package cgroupfs

import (
	"fmt"
	"path/filepath"
)

// VMStat is one reading of /proc/vmstat. Both are counts of pages since boot.
type VMStat struct {
	PgscanDirect uint64 // pages looked at by programs that had to reclaim themselves
	PgscanKswapd uint64 // pages looked at by kswapd
}

// ParseVMStat reads the text of /proc/vmstat into v, without allocating unless
// it fails. A missing pgscan_direct (kernels before 4.8 count per zone) is
// ErrAbsent; a known field that is no number or cut off is a *BrokenError.
func ParseVMStat(b []byte, v *VMStat) error {
	*v = VMStat{}
	found := false
	for len(b) > 0 {
		line, rest, whole := nextLine(b)
		b = rest
		name, value := nextWord(line)
		var dst *uint64
		switch string(name) {
		case "pgscan_direct":
			dst, found = &v.PgscanDirect, true
		case "pgscan_kswapd":
			dst = &v.PgscanKswapd
		default:
			continue
		}
		if !whole {
			return broken("", string(name), line, errCut)
		}
		word, tail := nextWord(value)
		n, ok := parseUint(word)
		if !ok || !isEmpty(tail) {
			return broken("", string(name), value, errNotNumber)
		}
		*dst = n
	}
	if !found {
		return fmt.Errorf("pgscan_direct: %w", ErrAbsent)
	}
	return nil
}

// vmstatBuffer is four times what a current kernel writes.
const vmstatBuffer = 32 << 10

// VMStatReader reads /proc/vmstat again and again through one descriptor and
// one buffer. Read is for one goroutine at a time; Close may come from another.
type VMStatReader struct {
	d   *descriptor
	buf [vmstatBuffer]byte
}

// OpenVMStat opens /proc/vmstat below the proc root. A kernel without it gives
// ErrAbsent.
func (f *FS) OpenVMStat() (*VMStatReader, error) {
	path := filepath.Join(f.roots.Proc, "vmstat")
	d, err := openDescriptor(path)
	if err != nil {
		return nil, absentOrBroken(path, err)
	}
	return &VMStatReader{d: d}, nil
}

// Read takes a reading, without allocating unless it fails. Errors are as of
// ParseVMStat. After an error v must not be used.
func (r *VMStatReader) Read(v *VMStat) error {
	b, err := r.d.read(r.buf[:])
	if err != nil {
		return err
	}
	if err := ParseVMStat(b, v); err != nil {
		return inFile(r.d.path, err)
	}
	return nil
}

// Close closes the descriptor.
func (r *VMStatReader) Close() error { return r.d.close() }
