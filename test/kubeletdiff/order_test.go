package kubeletdiff

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The set of equals that ours is held to is kubelet's own: over random scenarios
// of every signal and layout no pod goes before the one that kubelet takes.
func TestKubeletsOrder(t *testing.T) {
	n := number(t, "KUBELETDIFF_ORDER", 3000)
	first := uint64(number(t, "KUBELETDIFF_SEED", 1))
	seen := map[cell]int{}
	for i := range n {
		sc := scenario(first + uint64(i))
		synctest.Test(t, func(t *testing.T) { kubeletAlone(t, sc, seen) })
	}
	for _, about := range subjects() {
		var text strings.Builder
		for _, o := range []Outcome{HardVictim, SoftVictim} {
			c := seen[cell{about.signal, about.layout, o}]
			fmt.Fprintf(&text, "  %s %d", o, c)
			if n >= 3000 && c == 0 {
				t.Errorf("%s, %s: no %s", about.signal, about.layout, o)
			}
		}
		t.Logf("%-28s %-8s%s", about.signal, about.layout, text.String())
	}
}

// kubeletAlone plays a scenario for kubelet only: its victims end.
func kubeletAlone(t *testing.T, sc *Scenario, seen map[cell]int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := newWorld(sc)
	k, err := startKubelet(ctx, w)
	if err != nil {
		t.Fatalf("%v\n%s", err, sc)
	}
	d := &driver{w: w, k: k, began: time.Now(), count: func(cell) {}}
	k.pass(time.Now())
	for step := range sc.Steps {
		w.enter(step)
		for range sc.Pods {
			time.Sleep(5 * time.Second)
			v := k.pass(time.Now())
			if len(v.killed) == 0 {
				break
			}
			took := w.index(v.killed[0].pod)
			about := v.about(d.softGrace)
			if len(about) == 0 {
				t.Fatalf("step %d: kubelet %s: none of %v\n%s", step, v, v.texts, sc)
			}
			if sc.Pods[took].isCritical() {
				t.Fatalf("step %d: kubelet takes a critical pod\n%s", step, sc)
			}
			if !firstInSome(w, took, about) {
				t.Fatalf("step %d: kubelet %s: %+v goes before %+v in none of %v\n%s", step, v, sc.Pods[took], sc.Pods, about, sc)
			}
			for _, l := range about {
				outcome := HardVictim
				if l.soft {
					outcome = SoftVictim
				}
				seen[cell{l.signal, sc.Layout, outcome}]++
			}
			w.end(v.killed[0].pod)
		}
	}
	cancel()
	synctest.Wait()
}

// firstInSome says whether nobody goes before a pod for one of the thresholds.
func firstInSome(w *world, pod int, about []line) bool {
	for _, l := range about {
		if _, first := w.beaten(pod, l.signal); first {
			return true
		}
	}
	return false
}
