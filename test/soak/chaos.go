package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// target is something that is killed and comes back.
type target struct {
	name  string
	crash func() error
	stop  func() error
	start func(context.Context) error
	away  time.Duration // at most
}

func (s *soak) targets() (containerd target, halves []target) {
	containerd = target{"containerd", s.ctd.Kill, s.ctd.Stop, s.ctd.Restart, 1500 * time.Millisecond}
	for _, d := range []*daemon{s.proxy, s.evict} {
		halves = append(halves, target{d.name(), d.crash, d.terminate, func(context.Context) error { return d.start() }, 1500 * time.Millisecond})
	}
	return containerd, halves
}

// havoc kills and restarts targets at random until until has passed; one to all
// of them at a time. Once, in the middle, the first is away for longAbsence.
func (s *soak) havoc(ctx context.Context, until time.Time, long bool, targets ...target) error {
	first := targets[0]
	dice := rand.New(rand.NewPCG(s.seed, uint64(len(targets))))
	begun := time.Now()
	for time.Now().Before(until) {
		if err := sleep(ctx, time.Duration(1000+dice.IntN(7000))*time.Millisecond); err != nil {
			return err
		}
		if long && time.Since(begun) > time.Until(until) {
			long = false
			s.say("%s is away for %v", first.name, longAbsence)
			if err := s.bounce(ctx, true, longAbsence, first); err != nil {
				return err
			}
			continue
		}
		dice.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		chosen := targets[:1+dice.IntN(len(targets))]
		away := time.Duration(dice.Int64N(int64(chosen[0].away)))
		if err := s.bounce(ctx, dice.IntN(3) > 0, away, chosen...); err != nil {
			return err
		}
	}
	return nil
}

// bounce ends these, waits, and starts them in the same order.
func (s *soak) bounce(ctx context.Context, crash bool, away time.Duration, targets ...target) error {
	for _, t := range targets {
		end, how := t.stop, "restarted"
		if crash {
			end, how = t.crash, "killed"
		}
		if err := end(); err != nil {
			return fmt.Errorf("ending %s: %w", t.name, err)
		}
		s.counts.add(t.name + " " + how)
	}
	if err := sleep(ctx, away); err != nil {
		return err
	}
	for _, t := range targets {
		if err := t.start(ctx); err != nil {
			return fmt.Errorf("starting %s: %w", t.name, err)
		}
	}
	return nil
}
