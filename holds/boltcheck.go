package holds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// This file checks a bbolt file by plain reads before bbolt maps it. bbolt
// trusts its pages: a short file is SIGBUS, a branch page that leads to itself
// never ends and takes all memory, and neither can be recovered from. The
// format is that of bbolt's internal/common, version 2, little endian on both
// architectures this is built for.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltPageHeader = 16 // id 8, flags 2, count 2, overflow 4
	boltElement    = 16 // of a branch or leaf page
	boltMetaSize   = 64 // without the page header

	boltBranch   = 0x01
	boltLeaf     = 0x02
	boltFreelist = 0x10

	boltBucketFlag = 0x01 // of a leaf element
	boltBucketSize = 16   // root 8, sequence 8
)

// boltMeta is the valid meta page with the greatest transaction ID.
type boltMeta struct {
	pageSize             int64
	root, freelist, high uint64 // page numbers; high is one past the last in use
	txid                 uint64
}

// boltFile is the check of one file.
type boltFile struct {
	r    io.ReaderAt
	meta boltMeta
	seen []uint64 // a bit per page: in use or free
}

// checkBolt says whether bbolt can work with the file. The error wraps
// errDamaged, or is one of reading.
func checkBolt(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return checkBoltPages(f, st.Size())
}

func checkBoltPages(r io.ReaderAt, size int64) error {
	meta, err := findBoltMeta(r, size)
	if err != nil {
		return err
	}
	if meta.high < 4 || meta.high > uint64(size/meta.pageSize) {
		return fmt.Errorf("%w: %d pages in use, the file has %d", errDamaged, meta.high, size/meta.pageSize)
	}
	c := &boltFile{r: r, meta: meta, seen: make([]uint64, meta.high/64+1)}
	for id := range uint64(2) {
		if err := c.take(id); err != nil {
			return err
		}
	}
	if err := c.freelist(); err != nil {
		return err
	}
	return c.tree(meta.root)
}

// findBoltMeta reads both meta pages, for whatever page size the file has.
func findBoltMeta(r io.ReaderAt, size int64) (boltMeta, error) {
	first, err := readBoltMeta(r, 0)
	if err != nil && !errors.Is(err, errDamaged) {
		return boltMeta{}, err
	}
	if err == nil {
		second, err := readBoltMeta(r, first.pageSize)
		if err != nil && !errors.Is(err, errDamaged) {
			return boltMeta{}, err
		}
		if err == nil && second.pageSize == first.pageSize && second.txid > first.txid {
			return second, nil
		}
		return first, nil
	}
	for at := int64(1 << 10); at <= 1<<24 && at < size; at <<= 1 {
		second, err := readBoltMeta(r, at)
		if err == nil && second.pageSize == at {
			return second, nil
		}
		if err != nil && !errors.Is(err, errDamaged) {
			return boltMeta{}, err
		}
	}
	return boltMeta{}, fmt.Errorf("%w: no valid meta page", errDamaged)
}

func readBoltMeta(r io.ReaderAt, at int64) (boltMeta, error) {
	var b [boltMetaSize]byte
	if _, err := r.ReadAt(b[:], at+boltPageHeader); err != nil {
		if errors.Is(err, io.EOF) {
			return boltMeta{}, fmt.Errorf("%w: the file ends in a meta page", errDamaged)
		}
		return boltMeta{}, err
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:56]) // a hash never fails
	m := boltMeta{
		pageSize: int64(binary.LittleEndian.Uint32(b[8:])),
		root:     binary.LittleEndian.Uint64(b[16:]),
		freelist: binary.LittleEndian.Uint64(b[32:]),
		high:     binary.LittleEndian.Uint64(b[40:]),
		txid:     binary.LittleEndian.Uint64(b[48:]),
	}
	if binary.LittleEndian.Uint32(b[0:]) != boltMagic || binary.LittleEndian.Uint32(b[4:]) != boltVersion ||
		binary.LittleEndian.Uint64(b[56:]) != sum.Sum64() {
		return boltMeta{}, fmt.Errorf("%w: the meta page at %d is not valid", errDamaged, at)
	}
	if m.pageSize < 1<<10 || m.pageSize > 1<<24 || m.pageSize&(m.pageSize-1) != 0 {
		return boltMeta{}, fmt.Errorf("%w: page size %d", errDamaged, m.pageSize)
	}
	return m, nil
}

// take marks a page; a second time is a loop, or a page both free and in use.
func (c *boltFile) take(id uint64) error {
	if id >= c.meta.high {
		return fmt.Errorf("%w: page %d, the last is %d", errDamaged, id, c.meta.high-1)
	}
	if c.seen[id/64]&(1<<(id%64)) != 0 {
		return fmt.Errorf("%w: page %d is used twice", errDamaged, id)
	}
	c.seen[id/64] |= 1 << (id % 64)
	return nil
}

// page reads a page with its overflow pages and takes them.
func (c *boltFile) page(id uint64) (b []byte, flags uint16, count int, err error) {
	if err := c.take(id); err != nil {
		return nil, 0, 0, err
	}
	var head [boltPageHeader]byte
	if _, err := c.r.ReadAt(head[:], int64(id)*c.meta.pageSize); err != nil {
		return nil, 0, 0, fmt.Errorf("reading page %d: %w", id, err)
	}
	if got := binary.LittleEndian.Uint64(head[:]); got != id {
		return nil, 0, 0, fmt.Errorf("%w: page %d says it is %d", errDamaged, id, got)
	}
	overflow := uint64(binary.LittleEndian.Uint32(head[12:]))
	if overflow >= c.meta.high-id {
		return nil, 0, 0, fmt.Errorf("%w: page %d goes on for %d pages, the last is %d", errDamaged, id, overflow, c.meta.high-1)
	}
	for next := id + 1; next <= id+overflow; next++ {
		if err := c.take(next); err != nil {
			return nil, 0, 0, err
		}
	}
	b = make([]byte, int64(overflow+1)*c.meta.pageSize)
	if _, err := c.r.ReadAt(b, int64(id)*c.meta.pageSize); err != nil {
		return nil, 0, 0, fmt.Errorf("reading page %d: %w", id, err)
	}
	return b, binary.LittleEndian.Uint16(b[8:]), int(binary.LittleEndian.Uint16(b[10:])), nil
}

// freelist takes the free pages.
func (c *boltFile) freelist() error {
	b, flags, count, err := c.page(c.meta.freelist)
	if err != nil {
		return fmt.Errorf("list of free pages: %w", err)
	}
	if flags != boltFreelist {
		return fmt.Errorf("%w: page %d is no list of free pages", errDamaged, c.meta.freelist)
	}
	ids, n := b[boltPageHeader:], uint64(count)
	if count == 0xFFFF { // then the first entry is the number of the others
		n, ids = binary.LittleEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return fmt.Errorf("%w: %d free pages do not fit in their list", errDamaged, n)
	}
	for ; n > 0; n, ids = n-1, ids[8:] {
		if err := c.take(binary.LittleEndian.Uint64(ids)); err != nil {
			return fmt.Errorf("list of free pages: %w", err)
		}
	}
	return nil
}

// tree checks all pages below root, with those of the buckets in it.
func (c *boltFile) tree(root uint64) error {
	todo := []uint64{root}
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		b, flags, count, err := c.page(id)
		if err != nil {
			return err
		}
		var below []uint64
		switch flags {
		case boltBranch:
			below, err = branchChildren(b, count)
		case boltLeaf:
			below, err = leafBuckets(b, count, false)
		default:
			err = fmt.Errorf("%w: flags %#x in a tree", errDamaged, flags)
		}
		if err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
		todo = append(todo, below...)
	}
	return nil
}

// branchChildren returns the pages a branch page leads to.
func branchChildren(b []byte, count int) ([]uint64, error) {
	if count == 0 || boltPageHeader+count*boltElement > len(b) {
		return nil, fmt.Errorf("%w: branch with %d entries", errDamaged, count)
	}
	var children []uint64
	var last []byte
	for i := range count {
		at := boltPageHeader + i*boltElement
		key, _, err := boltEntry(b, at, binary.LittleEndian.Uint32(b[at:]), binary.LittleEndian.Uint32(b[at+4:]), 0)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return nil, fmt.Errorf("%w: entry %d is not in order", errDamaged, i)
		}
		last = key
		children = append(children, binary.LittleEndian.Uint64(b[at+8:]))
	}
	return children, nil
}

// leafBuckets checks the entries of a leaf page and returns the root pages of
// the buckets in it. The ledger's buckets stand one level deep, so that one
// inside of a small bucket (which has no page of its own) is damage.
func leafBuckets(b []byte, count int, inline bool) ([]uint64, error) {
	if boltPageHeader+count*boltElement > len(b) {
		return nil, fmt.Errorf("%w: leaf with %d entries", errDamaged, count)
	}
	var roots []uint64
	var last []byte
	for i := range count {
		at := boltPageHeader + i*boltElement
		key, value, err := boltEntry(b, at, binary.LittleEndian.Uint32(b[at+4:]),
			binary.LittleEndian.Uint32(b[at+8:]), binary.LittleEndian.Uint32(b[at+12:]))
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return nil, fmt.Errorf("%w: entry %d is not in order", errDamaged, i)
		}
		last = key
		if binary.LittleEndian.Uint32(b[at:])&boltBucketFlag == 0 {
			continue
		}
		root, err := boltBucket(value, inline)
		if err != nil {
			return nil, fmt.Errorf("bucket %.20q: %w", key, err)
		}
		if root != 0 {
			roots = append(roots, root)
		}
	}
	return roots, nil
}

// boltBucket returns a bucket's root page, 0 when its entries stand in the
// value itself.
func boltBucket(value []byte, inline bool) (uint64, error) {
	if inline || len(value) < boltBucketSize {
		return 0, fmt.Errorf("%w: %d bytes", errDamaged, len(value))
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		return root, nil
	}
	page := value[boltBucketSize:]
	if len(page) < boltPageHeader || binary.LittleEndian.Uint16(page[8:]) != boltLeaf {
		return 0, fmt.Errorf("%w: no page inside", errDamaged)
	}
	_, err := leafBuckets(page, int(binary.LittleEndian.Uint16(page[10:])), true)
	return 0, err
}

// boltEntry returns key and value of the entry whose description stands at at.
func boltEntry(b []byte, at int, pos, ksize, vsize uint32) (key, value []byte, err error) {
	from := uint64(at) + uint64(pos)
	if ksize == 0 || from+uint64(ksize)+uint64(vsize) > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: key of %d and value of %d bytes at %d", errDamaged, ksize, vsize, from)
	}
	end := from + uint64(ksize)
	return b[from:end], b[end : end+uint64(vsize)], nil
}
