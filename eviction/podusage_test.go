package eviction

import (
	"testing"
	"time"
)

// What is unknown is left out and said, never taken for nothing.
func TestPodUsageOn(t *testing.T) {
	num := func(n uint64) UsageNumber { return UsageNumber{Value: n, Known: true, Exact: true} }
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	u := &PodUsage{Parts: []UsagePart{
		{What: PartWritableLayer, Device: 1, Freed: FreedByRemoval, Bytes: num(5), Inodes: num(50), At: late},
		{What: PartDeletedFiles, Device: 1, Freed: FreedByStop, Bytes: num(3), At: early},
		{What: PartEmptyDir, Device: 1, Freed: FreedByDeletion, Bytes: UsageNumber{Value: 7, Known: true}, Inodes: num(70), At: late},
		{What: PartLogs, Device: 2, Freed: FreedByDeletion, Bytes: num(11), Inodes: num(1), At: late},
	}}
	for _, c := range []struct {
		name   string
		usage  *PodUsage
		device uint64
		inodes bool
		want   usageOn
	}{
		{"bytes", u, 1, false, usageOn{total: 15, stop: 3, removal: 5, deletion: 7, known: true, oldest: early}},
		{"inodes of one part unknown", u, 1, true, usageOn{total: 120, removal: 50, deletion: 70, known: true, incomplete: true, oldest: late}},
		{"another device", u, 2, false, usageOn{total: 11, deletion: 11, known: true, exact: true, oldest: late}},
		{"nothing there", u, 3, false, usageOn{known: true, exact: true}},
		{"one that lies nobody knows where", &PodUsage{Parts: []UsagePart{{What: PartWritableLayer, Bytes: num(5)}, u.Parts[3]}}, 1, false, usageOn{exact: true}},
		{"no parts", &PodUsage{}, 1, false, usageOn{exact: true}},
		{"no pod", nil, 1, false, usageOn{exact: true}},
	} {
		if got := c.usage.on(c.device, c.inodes); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
