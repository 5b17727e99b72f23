package cgroupfs

import (
	"fmt"
	"path/filepath"
)

// MemoryStat is a cgroup's memory.stat with everything below it, in bytes
// (v1: the total_ lines). Shmem is part of File.
type MemoryStat struct {
	Anon         uint64 // anonymous memory (v1 rss)
	File         uint64 // page cache, tmpfs and shared memory (v1 cache)
	Shmem        uint64 // tmpfs and shared memory; stays until the files are removed
	InactiveFile uint64 // page cache not used lately; kubelet takes it off the usage
	ActiveFile   uint64
}

// statField is a bit for each field of MemoryStat.
type statField uint8

const (
	statAnon statField = 1 << iota
	statFile
	statShmem
	statInactive
	statActive
)

// name is how the kernel calls the field.
func (s statField) name(v1 bool) string {
	switch s {
	case statAnon:
		if v1 {
			return "total_rss"
		}
		return "anon"
	case statFile:
		if v1 {
			return "total_cache"
		}
		return "file"
	case statShmem:
		if v1 {
			return "total_shmem"
		}
		return "shmem"
	case statInactive:
		if v1 {
			return "total_inactive_file"
		}
		return "inactive_file"
	case statActive:
		if v1 {
			return "total_active_file"
		}
		return "active_file"
	}
	return ""
}

// parseMemoryStat fills m and tells which fields were there. It does not
// allocate unless it fails.
func parseMemoryStat(b []byte, v1 bool, m *MemoryStat) (statField, error) {
	*m = MemoryStat{}
	var seen statField
	for len(b) > 0 {
		line, rest, whole := nextLine(b)
		b = rest
		name, value := nextWord(line)
		dst, bit := m.field(name, v1)
		if dst == nil {
			continue
		}
		if !whole {
			return seen, broken("", string(name), line, errCut)
		}
		word, tail := nextWord(value)
		v, ok := parseUint(word)
		if !ok || !isEmpty(tail) {
			return seen, broken("", string(name), value, errNotNumber)
		}
		if v >= absurdFrom {
			return seen, broken("", string(name), value, errAbsurd)
		}
		*dst = v
		seen |= bit
	}
	return seen, nil
}

func (m *MemoryStat) field(name []byte, v1 bool) (*uint64, statField) {
	if v1 {
		switch string(name) {
		case "total_rss":
			return &m.Anon, statAnon
		case "total_cache":
			return &m.File, statFile
		case "total_shmem":
			return &m.Shmem, statShmem
		case "total_inactive_file":
			return &m.InactiveFile, statInactive
		case "total_active_file":
			return &m.ActiveFile, statActive
		}
		return nil, 0
	}
	switch string(name) {
	case "anon":
		return &m.Anon, statAnon
	case "file":
		return &m.File, statFile
	case "shmem":
		return &m.Shmem, statShmem
	case "inactive_file":
		return &m.InactiveFile, statInactive
	case "active_file":
		return &m.ActiveFile, statActive
	}
	return nil, 0
}

// require turns missing fields into ErrAbsent, naming the first.
func (s statField) require(path string, v1 bool, need ...statField) error {
	for _, n := range need {
		if s&n == 0 {
			return fmt.Errorf("%s: %s: %w", path, n.name(v1), ErrAbsent)
		}
	}
	return nil
}

// statBuffer is several times what a current kernel writes.
const statBuffer = 16 << 10

// MemoryStat reads memory.stat. It costs the kernel a flush of per-CPU counts
// and is for calm times. A field this kernel does not have is ErrAbsent, with
// all others filled in.
func (p *PodCgroup) MemoryStat(m *MemoryStat) error {
	seen, err := p.readStat(m)
	if err != nil {
		return err
	}
	return seen.require(p.statPath(), p.fs.v1(), statAnon, statFile, statShmem, statInactive, statActive)
}

// InactiveFile is inactive_file or total_inactive_file of memory.stat, for
// calm times like MemoryStat.
func (p *PodCgroup) InactiveFile() (uint64, error) {
	var m MemoryStat
	seen, err := p.readStat(&m)
	if err != nil {
		return 0, err
	}
	if err := seen.require(p.statPath(), p.fs.v1(), statInactive); err != nil {
		return 0, err
	}
	return m.InactiveFile, nil
}

func (p *PodCgroup) readStat(m *MemoryStat) (statField, error) {
	if err := p.use(); err != nil {
		return 0, err
	}
	defer p.unuse()
	var buf [statBuffer]byte
	b, err := p.readBelow("memory.stat", buf[:])
	if err != nil {
		return 0, err
	}
	seen, err := parseMemoryStat(b, p.fs.v1(), m)
	if err != nil {
		return 0, inFile(p.statPath(), err)
	}
	return seen, nil
}

func (p *PodCgroup) statPath() string { return filepath.Join(p.full, "memory.stat") }

// v1 tells whether memory is in a v1 hierarchy.
func (f *FS) v1() bool { return f.mode != V2 }
