package gc

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkPlanContainers plans for a node with 20,000 dead containers: of a hundred
// pods, and of one that has been crashing with nobody to clean up after it.
func BenchmarkPlanContainers(b *testing.B) {
	for _, pods := range []int{100, 1} {
		each := 20_000 / pods
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			var n node
			for p := range pods {
				uid := fmt.Sprintf("p%d", p)
				n.sandbox(uid, 0, true, 400*time.Hour)
				for i := range each {
					n.container(uid+"/0", "main", uint32(i), Exited, 300*time.Hour-time.Duration(i)*time.Minute/2)
				}
			}
			r := rules(nil)
			for b.Loop() {
				if remove, _ := PlanContainers(&n.Listing, r); len(remove) != pods*(each-1) {
					b.Fatalf("%d go", len(remove))
				}
			}
		})
	}
}

// BenchmarkPlanImages plans for a node with 2,000 images.
func BenchmarkPlanImages(b *testing.B) {
	n := newImageNode()
	for i := range 2000 {
		id := fmt.Sprintf("sha256:%064x", i)
		n.add(id, time.Duration(i+1)*time.Hour, fmt.Sprintf("registry.example/team/app-%d:1", i), fmt.Sprintf("registry.example/team/app-%d@sha256:%064x", i, i))
	}
	list, _, err := ParseAllowList([]string{"registry.example/base/*", "registry.example/infra:1"})
	if err != nil {
		b.Fatal(err)
	}
	n.rules.Keep = list
	for b.Loop() {
		if remove, _ := PlanImages(n.images, n.rules); len(remove) != 2000 {
			b.Fatalf("%d go", len(remove))
		}
	}
}
