package gc

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Whatever the lists say: without word from kubelet, the newest container of each
// name, the newest that has ended, and the newest sandbox of each pod are there
// after everything that was planned is gone; and nothing is planned that runs.
func TestPlanContainersKeepsWhatKubeletNeeds(t *testing.T) {
	seed := uint64(1)
	next := func(n int) int { // xorshift: the same numbers each time
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return int(seed % uint64(n))
	}
	for range 2000 {
		var n node
		for s := range 1 + next(3) {
			n.sandbox("p", uint32(s), next(2) == 0, time.Duration(next(100))*time.Minute)
			for range next(6) {
				id := fmt.Sprintf("p/%d", s)
				n.container(id, string(rune('a'+next(2))), uint32(next(4)), ContainerState(next(4)), time.Duration(next(100))*time.Minute)
				n.Containers[len(n.Containers)-1].ID += fmt.Sprintf("#%d", len(n.Containers))
			}
		}
		remove, _ := PlanContainers(&n.Listing, rules(map[string]PodState{"p": {Finished: false}}))
		gone := map[string]bool{}
		for _, s := range remove {
			gone[s.Kind+s.ID] = true
		}
		newest := func(of func(*Container) bool) *Container {
			var out *Container
			for i := range n.Containers {
				if c := &n.Containers[i]; of(c) && (out == nil || c.Created.After(out.Created)) {
					out = c
				}
			}
			return out
		}
		for _, name := range []string{"a", "b"} {
			for _, of := range []func(*Container) bool{
				func(c *Container) bool { return c.Name == name },
				func(c *Container) bool { return c.Name == name && c.State == Exited },
			} {
				if c := newest(of); c != nil && gone[KindContainer+c.ID] {
					t.Fatalf("%s goes, of\n%+v", c.ID, n.Listing)
				}
			}
		}
		for _, c := range n.Containers {
			if gone[KindContainer+c.ID] && (c.State == Running || c.State == Unknown) {
				t.Fatalf("%s is %s and goes", c.ID, c.State)
			}
			if !gone[KindContainer+c.ID] && gone[KindSandbox+c.SandboxID] {
				t.Fatalf("sandbox %s goes before %s", c.SandboxID, c.ID)
			}
		}
		last := slices.MaxFunc(n.Sandboxes, func(a, b Sandbox) int { return a.Created.Compare(b.Created) })
		if gone[KindSandbox+last.ID] {
			t.Fatalf("the newest sandbox %s goes, of\n%+v", last.ID, n.Sandboxes)
		}
		for _, s := range n.Sandboxes {
			if gone[KindSandbox+s.ID] && s.Ready {
				t.Fatalf("sandbox %s is ready and goes", s.ID)
			}
		}
	}
}
