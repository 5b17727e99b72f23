package cluster

import (
	"context"
	"sync"
	"time"
)

// probe reads how much is available of something, in bytes.
type probe struct {
	read      func() (uint64, error)
	threshold uint64
}

// memoryProbe is the machine's memory.
func memoryProbe(threshold uint64) probe {
	return probe{threshold: threshold, read: func() (uint64, error) {
		m, err := meminfo()
		return available(m), err
	}}
}

// gauge samples what is available, every 5 ms.
type gauge struct {
	stop func() gauged
}

// gauged is what a gauge has seen. Amounts are bytes.
type gauged struct {
	crossed time.Time // the first sample below the threshold; zero for none
	lowest  uint64
}

// watch measures until its stop is called.
func (s *stage) watch(p probe) *gauge {
	ctx, cancel := context.WithCancel(s.t.Context())
	g := gauged{lowest: ^uint64(0)}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if now, err := p.read(); err == nil {
				g.lowest = min(g.lowest, now)
				if now < p.threshold && g.crossed.IsZero() {
					g.crossed = time.Now()
				}
			}
			<-tick.C
		}
	})
	return &gauge{stop: sync.OnceValue(func() gauged {
		cancel()
		wg.Wait()
		return g
	})}
}
