package eviction

import (
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/holds"
)

func TestPressure(t *testing.T) {
	var p pressure
	const transition = 5 * time.Minute
	when := func(sec int) time.Time { return t0.Add(time.Duration(sec) * time.Second) }
	for _, step := range []struct {
		sec, met int // met < 0: never yet
		since    int // < 0: it does not hold
	}{
		{0, -1, -1},
		{10, 9, 9},
		{20, 20, 9},   // it has held since the first sample
		{319, 20, 9},  // 299 s after the last
		{320, 20, -1}, // the transition period is over
		{400, 20, -1},
		{401, 400, 400},
	} {
		var met time.Time
		if step.met >= 0 {
			met = when(step.met)
		}
		p.update(when(step.sec), met, false, transition)
		if step.since < 0 != p.since.IsZero() || step.since >= 0 && !p.since.Equal(when(step.since)) {
			t.Errorf("at %d s: since %v", step.sec, p.since)
		}
	}
}

func TestSignalsHaveTheirCondition(t *testing.T) {
	var c conditions
	now := t0.Add(time.Minute)
	if got := c.published(now); got != (holds.Conditions{}) {
		t.Errorf("%+v without any pressure", got)
	}
	for _, s := range []struct {
		signal Signal
		want   holds.Conditions
	}{
		{MemoryAvailable, holds.Conditions{Memory: true}},
		{AllocatableMemoryAvailable, holds.Conditions{Memory: true}},
		{NodeFsAvailable, holds.Conditions{Disk: true}},
		{NodeFsInodesFree, holds.Conditions{Disk: true}},
		{ImageFsInodesFree, holds.Conditions{Disk: true}},
		{ContainerFsAvailable, holds.Conditions{Disk: true}},
		{PIDAvailable, holds.Conditions{PID: true}},
	} {
		var c conditions
		c[s.signal.condition()].update(now, t0, false, time.Hour)
		s.want.Since, s.want.Expires = t0, now.Add(15*time.Second)
		if got := c.published(now); got != s.want {
			t.Errorf("%s: %+v", s.signal, got)
		}
	}
	c[memoryPressure].update(now, t0.Add(time.Second), false, time.Hour)
	c[pidPressure].update(now, t0, false, time.Hour)
	if got := c.published(now); !got.Since.Equal(t0) || !got.Memory || !got.PID || got.Disk {
		t.Errorf("two of them: %+v", got)
	}
}
