package proxy

import (
	"math/bits"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// Sizes of pooled buffers: powers of two from 4 KiB to 64 KiB. grpc-go itself
// sends frames of 16 KiB; smaller buffers than 1 KiB never get here.
const (
	smallestBuffer = 12
	largestBuffer  = 16
	bufferClasses  = largestBuffer - smallestBuffer + 1
	// keptBytes may stay in the pool for good, of all sizes together.
	keptBytes = 2 << 20
	// trimPeriod is how long a buffer may be unused before it is given back.
	trimPeriod = 2 * time.Second
)

// pool keeps the buffers of message frames. It differs from grpc-go's own in
// two ways: it does not clear buffers, which are overwritten from the wire as a
// whole, and what a burst of large answers left behind goes back to the kernel
// when it has not been needed for trimPeriod. It is no sync.Pool because that
// forgets at each collection and cannot tell how much it holds.
type pool struct {
	// release gives free memory back to the kernel; tests replace it.
	release func()

	mu    sync.Mutex
	class [bufferClasses]class
	free  int         // bytes, of all classes
	timer *time.Timer // of trim, nil before it was first needed
	armed bool        // the timer runs
	done  bool
}

// class is the buffers of one size that are not in use.
type class struct {
	free  []*[]byte
	least int // smallest len(free) since the last trim: these were not needed
}

var _ mem.BufferPool = (*pool)(nil)

func newPool() *pool { return &pool{release: debug.FreeOSMemory} }

// classOf is the index of the smallest class that holds n bytes.
func classOf(n int) int { return max(bits.Len(uint(n-1))-smallestBuffer, 0) }

// Get implements mem.BufferPool. The content is arbitrary.
func (p *pool) Get(n int) *[]byte {
	if n <= 0 || n > 1<<largestBuffer {
		b := make([]byte, n)
		return &b
	}
	i := classOf(n)
	p.mu.Lock()
	c := &p.class[i]
	if last := len(c.free) - 1; last >= 0 {
		b := c.free[last]
		c.free[last] = nil
		c.free = c.free[:last]
		c.least = min(c.least, last)
		p.free -= cap(*b)
		p.mu.Unlock()
		*b = (*b)[:n]
		return b
	}
	p.mu.Unlock()
	b := make([]byte, n, 1<<(i+smallestBuffer))
	return &b
}

// Put implements mem.BufferPool.
func (p *pool) Put(b *[]byte) {
	size := cap(*b)
	if size < 1<<smallestBuffer || size > 1<<largestBuffer || size&(size-1) != 0 {
		return // not ours
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.class[classOf(size)]
	c.free = append(c.free, b)
	p.free += size
	if p.free > keptBytes && !p.armed && !p.done {
		p.armed = true
		if p.timer == nil {
			p.timer = time.AfterFunc(trimPeriod, p.trim)
		} else {
			p.timer.Reset(trimPeriod)
		}
	}
}

// trim lets go of what was not needed since the last time, down to keptBytes.
func (p *pool) trim() {
	p.mu.Lock()
	dropped := 0
	for i := range p.class {
		c := &p.class[i]
		size := 1 << (i + smallestBuffer)
		n := min(c.least, (p.free-keptBytes+size-1)/size)
		if n > 0 {
			kept := copy(c.free, c.free[n:])
			clear(c.free[kept:])
			c.free = c.free[:kept]
			p.free -= n * size
			dropped += n * size
		}
		c.least = len(c.free)
	}
	again := p.free > keptBytes && !p.done
	p.armed = again
	if again {
		p.timer.Reset(trimPeriod)
	}
	p.mu.Unlock()
	if dropped > 0 {
		p.release()
	}
}

// close ends the trimming.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
