package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/test/vm/survivor/told"
)

const (
	// watch is how long nobody may be evicted after a boot.
	watch = 2 * time.Second
	// back is how many pods of before the cut come back.
	back = 3
	// kept is after what time an eviction is in the ledger; the design says within a
	// second, of a machine that is not emulated.
	kept = 5 * time.Second
)

// calm starts the pods from before the boot once more and looks that the evictor
// knows what it did, holds nobody, and does nothing to those that came back.
func (n *node) calm(ctx context.Context, known told.Facts) error {
	before, err := n.explain(ctx)
	if err != nil {
		return err
	}
	for id, uid := range known.Kept {
		if before[id] != uid {
			return fmt.Errorf("decision %d about pod %s is not explained: %q", id, uid, before[id])
		}
	}
	for id := range before {
		n.last = max(n.last, id)
	}
	pods := []*pod{}
	for _, uid := range known.Began[max(0, len(known.Began)-back):] {
		if err := n.dead(ctx, uid); err != nil {
			return err
		}
		// Within its request, so that the next hog is the victim.
		p, err := n.run(ctx, "Guaranteed", uid, 1, 8*mib)
		if err != nil {
			return fmt.Errorf("pod %s does not come back: %w", uid, err)
		}
		pods = append(pods, p)
	}
	time.Sleep(watch)
	after, err := n.explain(ctx)
	if err != nil {
		return err
	}
	if len(after) != len(before) {
		return fmt.Errorf("decisions without any need: %v before, %v now", before, after)
	}
	for _, p := range pods {
		select {
		case <-p.ended:
			return fmt.Errorf("pod %s came back and was ended: %v", p.uid, p.process.ProcessState)
		default:
		}
	}
	st, err := n.admin().Status(ctx)
	if err == nil && (st.Engine.LedgerError != "" || st.Engine.Held != 0 || st.Proxy.HoldsProblem != "") {
		err = fmt.Errorf("ledger %q, %d held, holds %q", st.Engine.LedgerError, st.Engine.Held, st.Proxy.HoldsProblem)
	}
	return err
}

// explain returns the victims of the evictor's decisions, by ID.
func (n *node) explain(ctx context.Context) (map[uint64]string, error) {
	out := map[uint64]string{}
	return out, eventually(ctx, "the evictor explains", func(ctx context.Context) error {
		x, err := n.admin().Explain(ctx, "")
		for _, d := range x.Decisions {
			out[d.ID] = ""
			if d.Victim != nil {
				out[d.ID] = d.Victim.UID
			}
		}
		return err
	})
}

// evictions has one pod after the other evicted, without end.
func (n *node) evictions(ctx context.Context) error {
	for {
		uid := lab.NewUID()
		told.Say(told.Began, uid)
		// Not BestEffort, whose start the pressure of the last eviction forbids for a while.
		p, err := n.run(ctx, "Burstable", uid, 0, hogSize)
		if err != nil {
			return err
		}
		var hold admin.Hold
		err = eventually(ctx, "the hog is evicted", func(ctx context.Context) error {
			h, err := n.admin().Holds(ctx) // a hand-over may be under way
			for _, r := range h.Holds {
				if r.Pod.UID == uid && !r.KilledAt.IsZero() {
					hold = r
					return nil
				}
			}
			return errors.Join(err, errors.New("no hold"))
		})
		if err != nil {
			return err
		}
		if hold.ID <= n.last {
			return fmt.Errorf("decision %d about pod %s, and %d was before the boot", hold.ID, uid, n.last)
		}
		<-p.ended
		time.AfterFunc(kept, func() { told.Say(told.Kept, hold.ID, uid) })
		if err := n.remove(ctx, p); err != nil {
			return err
		}
	}
}

// handOvers replaces proxy and evictor by new processes, without end.
func (n *node) handOvers(ctx context.Context) error {
	for {
		cmd := exec.CommandContext(ctx, program, "upgrade", "--proxy-socket", n.path("run/proxy.sock"), "--admin-socket", n.path("admin.sock"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("upgrade: %w: %s", err, out)
		}
		time.Sleep(500 * time.Millisecond)
	}
}
