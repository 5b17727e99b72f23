package cgroupfs

import "path/filepath"

// RootMemory reads what kubelet itself reads for the whole node, for
// `memoryAvailableFrom: kubelet` and as a calm-time cross-check. It is for one
// goroutine at a time; Close may come from another.
type RootMemory struct {
	usage *descriptor // v1 only
	stat  *descriptor
	v1    bool
	buf   [statBuffer]byte
}

// OpenRootMemory opens the files of the hierarchy's root: memory.stat, and on
// v1 memory.usage_in_bytes. A v2 root without memory.stat (before kernel 5.4,
// or without the controller) is ErrAbsent.
func (f *FS) OpenRootMemory() (*RootMemory, error) {
	r := &RootMemory{v1: f.v1()}
	path := filepath.Join(f.memory, "memory.stat")
	var err error
	if r.stat, err = openDescriptor(path); err != nil {
		return nil, absentOrBroken(path, err)
	}
	if !r.v1 {
		return r, nil
	}
	path = filepath.Join(f.memory, "memory.usage_in_bytes")
	if r.usage, err = openDescriptor(path); err != nil {
		_ = r.stat.close() // read only
		return nil, absentOrBroken(path, err)
	}
	return r, nil
}

// Read gives the node's usage and inactive_file as kubelet sees them: on v1
// memory.usage_in_bytes and total_inactive_file; on v2, whose root has no
// memory.current, anon + file and inactive_file of memory.stat
// (rootStatsFromMeminfo in opencontainers/cgroups). kubelet's working set is
// their difference.
func (r *RootMemory) Read() (usage, inactiveFile uint64, err error) {
	b, err := r.stat.read(r.buf[:])
	if err != nil {
		return 0, 0, err
	}
	var m MemoryStat
	seen, err := parseMemoryStat(b, r.v1, &m)
	if err != nil {
		return 0, 0, inFile(r.stat.path, err)
	}
	if !r.v1 {
		if err := seen.require(r.stat.path, false, statAnon, statFile, statInactive); err != nil {
			return 0, 0, err
		}
		return satAdd(m.Anon, m.File), m.InactiveFile, nil
	}
	if err := seen.require(r.stat.path, true, statInactive); err != nil {
		return 0, 0, err
	}
	b, err = r.usage.read(r.buf[:])
	if err != nil {
		return 0, 0, err
	}
	usage, err = parseBytes(r.usage.path, "", b)
	return usage, m.InactiveFile, err
}

// Close closes the descriptors.
func (r *RootMemory) Close() error {
	err := r.stat.close()
	if r.usage != nil {
		if uerr := r.usage.close(); err == nil {
			err = uerr
		}
	}
	return err
}

// KubeletAvailableFrom is kubelet's memory.available from its own sources:
// memTotal − (usage − inactiveFile) − hugePools, every step saturating at 0.
func KubeletAvailableFrom(memTotal, usage, inactiveFile, hugePools uint64) uint64 {
	return satSub(satSub(memTotal, satSub(usage, inactiveFile)), hugePools)
}
