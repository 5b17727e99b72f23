package proxy

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPoolBuffersHaveTheLengthAskedFor(t *testing.T) {
	p := newPool()
	for _, n := range []int{0, 1, 1025, 4095, 4096, 4097, 16384, 16385, 32768, 65535, 65536, 65537, 1 << 20} {
		for range 2 { // new, and from the pool
			b := p.Get(n)
			if len(*b) != n {
				t.Fatalf("asked for %d bytes, got %d", n, len(*b))
			}
			p.Put(b)
		}
	}
}

func TestPoolReusesBuffers(t *testing.T) {
	p := newPool()
	a := p.Get(16384)
	short := (*a)[:10] // gRPC may hand back a prefix
	p.Put(&short)
	b := p.Get(9000)
	if &(*b)[0] != &short[0] {
		t.Error("the buffer that came back was not used")
	}
	if c := p.Get(9000); &(*c)[0] == &(*b)[0] {
		t.Error("one buffer has two users")
	}
}

func TestPoolKeepsNoForeignSizes(t *testing.T) {
	p := newPool()
	for _, size := range []int{0, 100, 5000, 1 << 17} {
		b := make([]byte, size)
		p.Put(&b)
	}
	if p.free != 0 {
		t.Errorf("%d bytes kept", p.free)
	}
}

// fill takes n buffers of 16 KiB and puts them back.
func fill(p *pool, n int) {
	var all []*[]byte
	for range n {
		all = append(all, p.Get(16384))
	}
	for _, b := range all {
		p.Put(b)
	}
}

func free(p *pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

func TestPoolGivesBackWhatABurstLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		released := 0
		p.release = func() { released++ }
		fill(p, 4096) // 64 MiB
		if free(p) != 64<<20 {
			t.Fatalf("%d bytes kept after the burst", free(p))
		}
		time.Sleep(3 * trimPeriod)
		synctest.Wait()
		if free(p) > keptBytes || free(p) < keptBytes/2 {
			t.Errorf("%d bytes kept", free(p))
		}
		if released != 1 {
			t.Errorf("memory given back %d times", released)
		}
		p.mu.Lock()
		armed := p.armed
		p.mu.Unlock()
		if armed {
			t.Error("the timer of a pool at rest runs")
		}
		// And again: it is armed by the next burst.
		fill(p, 4096)
		time.Sleep(3 * trimPeriod)
		synctest.Wait()
		if free(p) > keptBytes || released != 2 {
			t.Errorf("after the second burst %d bytes kept, given back %d times", free(p), released)
		}
		p.close()
	})
}

func TestPoolKeepsWhatIsUsedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool()
		released := 0
		p.release = func() { released++ }
		for range 30 {
			fill(p, 512) // 8 MiB every second
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if free(p) != 8<<20 || released != 0 {
			t.Errorf("%d bytes kept, given back %d times", free(p), released)
		}
		p.close()
		time.Sleep(10 * trimPeriod)
		synctest.Wait()
		if released > 0 {
			t.Error("trimmed after close")
		}
	})
}

func TestPoolServesWithoutAllocating(t *testing.T) {
	p := newPool()
	fill(p, 1)
	if n := testing.AllocsPerRun(100, func() { p.Put(p.Get(16384)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPool(b *testing.B) {
	p := newPool()
	for b.Loop() {
		p.Put(p.Get(16384))
	}
}
