package diskusage

// What a tree may cost, whatever its owner makes of it.
const (
	// maxDepth is how many directories deep a tree is followed.
	maxDepth = 1024
	// maxEntries is how many names one tree is read for: whoever makes files
	// faster than the walker reads them would keep it for ever.
	maxEntries = 20 << 20
	// maxMemory bounds what all unfinished walks together remember, in bytes.
	maxMemory = 16 << 20
	// linkCost and frameCost are what one remembered inode and directory take.
	linkCost  = 64
	frameCost = 96
)

// memory counts what the unfinished walks remember. It is used by the walker's
// goroutine alone.
type memory struct{ used, limit int }

func newMemory() *memory { return &memory{limit: maxMemory} }

// take reports whether so much more may be remembered.
func (m *memory) take(n int) bool {
	if m.used+n > m.limit {
		return false
	}
	m.used += n
	return true
}

func (m *memory) give(n int) { m.used -= n }

// links counts files with several names once within a pod.
type links struct {
	mem  *memory
	seen map[linkKey]struct{}
}

type linkKey struct{ dev, ino uint64 }

// first says whether the inode was not seen before. known is false when it
// could not be remembered: then each of its names will be asked about again.
func (l *links) first(dev, ino uint64) (first, known bool) {
	key := linkKey{dev, ino}
	if _, ok := l.seen[key]; ok {
		return false, true
	}
	if !l.mem.take(linkCost) {
		return true, false
	}
	if l.seen == nil {
		l.seen = map[linkKey]struct{}{}
	}
	l.seen[key] = struct{}{}
	return true, true
}

// release forgets everything.
func (l *links) release() {
	l.mem.give(len(l.seen) * linkCost)
	l.seen = nil
}

// sum adds up inodes.
type sum struct {
	blocks, inodes uint64
	// shared are the names whose inodes could not be remembered, by how many
	// names an inode has: all of its names lie in one volume, because a link
	// cannot cross a mount, so that each name counts for its share.
	shared map[uint32]sharedSum
}

type sharedSum struct{ blocks, names uint64 }

// maxShared bounds the map of shares; beyond it a name counts for nothing.
const maxShared = 1024

// add counts an inode that is not a directory.
func (s *sum) add(in *inode, l *links) {
	if in.nlink > 1 {
		first, known := l.first(in.dev, in.ino)
		if !first {
			return
		}
		if !known {
			s.share(in)
			return
		}
	}
	s.blocks += in.blocks
	s.inodes++
}

func (s *sum) share(in *inode) {
	if s.shared == nil {
		s.shared = map[uint32]sharedSum{}
	}
	v, ok := s.shared[in.nlink]
	if !ok && len(s.shared) >= maxShared {
		return
	}
	v.blocks += in.blocks
	v.names++
	s.shared[in.nlink] = v
}

// total is bytes and inodes; exact is false when shares are among them.
func (s *sum) total() (bytes, inodes uint64, exact bool) {
	blocks, inodes := s.blocks, s.inodes
	for n, v := range s.shared {
		blocks += v.blocks / uint64(n)
		inodes += v.names / uint64(n)
	}
	return blocks * blockSize, inodes, len(s.shared) == 0
}
