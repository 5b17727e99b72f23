package cgroupfs

import (
	"bytes"
	"path/filepath"
)

// Meminfo is one reading of /proc/meminfo. Sizes are bytes.
type Meminfo struct {
	MemTotal     uint64
	MemFree      uint64
	MemAvailable uint64
	Buffers      uint64
	Cached       uint64
	SwapCached   uint64
	ActiveFile   uint64
	InactiveFile uint64
	AnonPages    uint64
	Shmem        uint64
	SwapTotal    uint64
	SwapFree     uint64
	Hugetlb      uint64 // huge pages of every size together
	HugePageSize uint64 // the default size

	HugePagesTotal uint64 // pages of the default size, a count

	HasAvailable bool // MemAvailable was there (always, after ParseMeminfo without error)
	HasHugetlb   bool // Hugetlb was there (kernel 4.15 and later)
	HasKubelet   bool // everything the kubelet reading needs was there
}

// meminfoField is a bit for each field whose presence matters.
type meminfoField uint8

const (
	hasTotal meminfoField = 1 << iota
	hasAvailable
	hasAnon
	hasCached
	hasBuffers
	hasInactive
	hasHugetlb

	hasKubelet = hasTotal | hasAnon | hasCached | hasBuffers | hasInactive
)

// ParseMeminfo reads the text of /proc/meminfo into m, without allocating
// unless it fails. "kB" becomes bytes, saturating. MemTotal and MemAvailable
// have to be there; a known field that is no number, cut off, or a MemFree or
// MemAvailable above MemTotal is a *BrokenError that names the field. After an
// error m must not be used.
func ParseMeminfo(b []byte, m *Meminfo) error {
	*m = Meminfo{}
	var seen meminfoField
	for len(b) > 0 {
		line, rest, whole := nextLine(b)
		b = rest
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		dst, bit := m.field(line[:colon])
		if dst == nil {
			continue
		}
		if !whole {
			return broken("", string(line[:colon]), line, errCut)
		}
		word, unit := nextWord(line[colon+1:])
		v, ok := parseUint(word)
		if !ok {
			return broken("", string(line[:colon]), line[colon+1:], errNotNumber)
		}
		unit, tail := nextWord(unit)
		switch {
		case len(unit) == 0:
		case string(unit) == "kB" && isEmpty(tail):
			v = satMul(v, 1024)
		default:
			return broken("", string(line[:colon]), line[colon+1:], errNotNumber)
		}
		*dst = v
		seen |= bit
	}
	return m.check(seen)
}

func isEmpty(b []byte) bool {
	word, _ := nextWord(b)
	return len(word) == 0
}

// field maps a name to its place. The switch on a converted byte slice does
// not allocate.
func (m *Meminfo) field(name []byte) (*uint64, meminfoField) {
	switch string(name) {
	case "MemTotal":
		return &m.MemTotal, hasTotal
	case "MemFree":
		return &m.MemFree, 0
	case "MemAvailable":
		return &m.MemAvailable, hasAvailable
	case "Buffers":
		return &m.Buffers, hasBuffers
	case "Cached":
		return &m.Cached, hasCached
	case "SwapCached":
		return &m.SwapCached, 0
	case "Active(file)":
		return &m.ActiveFile, 0
	case "Inactive(file)":
		return &m.InactiveFile, hasInactive
	case "AnonPages":
		return &m.AnonPages, hasAnon
	case "Shmem":
		return &m.Shmem, 0
	case "SwapTotal":
		return &m.SwapTotal, 0
	case "SwapFree":
		return &m.SwapFree, 0
	case "Hugetlb":
		return &m.Hugetlb, hasHugetlb
	case "HugePages_Total":
		return &m.HugePagesTotal, 0
	case "Hugepagesize":
		return &m.HugePageSize, 0
	}
	return nil, 0
}

func (m *Meminfo) check(seen meminfoField) error {
	switch {
	case seen&hasTotal == 0:
		return broken("", "MemTotal", nil, errMissing)
	case seen&hasAvailable == 0:
		return broken("", "MemAvailable", nil, errMissing)
	case m.MemTotal == 0:
		return broken("", "MemTotal", []byte("0"), errAbsurd)
	case m.MemAvailable > m.MemTotal:
		return broken("", "MemAvailable", []byte("more than MemTotal"), errAbsurd)
	case m.MemFree > m.MemTotal:
		return broken("", "MemFree", []byte("more than MemTotal"), errAbsurd)
	}
	m.HasAvailable = true
	m.HasHugetlb = seen&hasHugetlb != 0
	m.HasKubelet = seen&hasKubelet == hasKubelet
	return nil
}

// KernelAvailable is the kernel's own estimate of what can be given to
// programs without swapping: MemAvailable.
func (m *Meminfo) KernelAvailable() uint64 { return m.MemAvailable }

// KubeletAvailable is what kubelet calls memory.available, from /proc/meminfo
// alone:
//
//	MemTotal − (AnonPages + Cached + Buffers + SwapCached − Inactive(file)) − huge page pools
//
// The middle is kubelet's working set of the root cgroup: usage (anon + file)
// less inactive_file; AnonPages is its anon, and Cached + Buffers + SwapCached
// its file. The pools are taken off as kubelet 1.37 does in adjustForHugePages.
// Every step saturates at 0.
//
// Without all fields (HasKubelet false) it is MemTotal, so that a reading
// nobody made never confirms a kill.
func (m *Meminfo) KubeletAvailable() uint64 {
	if !m.HasKubelet {
		return m.MemTotal
	}
	usage := satAdd(satAdd(m.AnonPages, m.Cached), satAdd(m.Buffers, m.SwapCached))
	workingSet := satSub(usage, m.InactiveFile)
	return satSub(satSub(m.MemTotal, workingSet), m.HugePools())
}

// HugePools is the memory set aside for huge pages, used or not: Hugetlb where
// the kernel gives it, else the pool of the default size.
func (m *Meminfo) HugePools() uint64 {
	if m.HasHugetlb {
		return m.Hugetlb
	}
	return satMul(m.HugePagesTotal, m.HugePageSize)
}

// meminfoBuffer is five times what a current kernel writes.
const meminfoBuffer = 8 << 10

// MeminfoReader reads /proc/meminfo again and again through one descriptor and
// one buffer. Read is for one goroutine at a time; Close may come from another.
type MeminfoReader struct {
	d   *descriptor
	buf [meminfoBuffer]byte
}

// OpenMeminfo opens /proc/meminfo below the proc root.
func (f *FS) OpenMeminfo() (*MeminfoReader, error) {
	path := filepath.Join(f.roots.Proc, "meminfo")
	d, err := openDescriptor(path)
	if err != nil {
		return nil, broken(path, "", nil, err)
	}
	return &MeminfoReader{d: d}, nil
}

// Read takes a reading, without allocating unless it fails. Errors are
// *BrokenError. After an error m must not be used.
func (r *MeminfoReader) Read(m *Meminfo) error {
	b, err := r.d.read(r.buf[:])
	if err != nil {
		return err
	}
	if err := ParseMeminfo(b, m); err != nil {
		return inFile(r.d.path, err)
	}
	return nil
}

// Close closes the descriptor.
func (r *MeminfoReader) Close() error { return r.d.close() }
