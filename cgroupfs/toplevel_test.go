package cgroupfs

import (
	"slices"
	"testing"
)

func TestTopLevelUsageOfEachTree(t *testing.T) {
	for name, want := range map[string][]CgroupUsage{
		"v1":          {{"/kubepods", 900 * mib}, {"/system.slice", 400 * mib}},
		"hybrid":      {{"/user.slice", 8 * gib}, {"/kubepods", 900 * mib}, {"/system.slice", 400 * mib}},
		"v2-systemd":  {{"/kubepods.slice", 900 * mib}, {"/system.slice", 400 * mib}, {"/user.slice", 100 * mib}},
		"v2-cgroupfs": {{"/kubepods", 900 * mib}, {"/system.slice", 400 * mib}},
	} {
		if got := openTree(t, name).TopLevelUsage(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// What has no numbers, or none that can be understood, is left out; the rest is
// told.
func TestTopLevelUsageLeavesOut(t *testing.T) {
	f := podsTree(t, map[string]string{"init.scope": "", "dev-hugepages.mount": "0", "system.slice": "8162312192", "broken.slice": "-1"})
	want := []CgroupUsage{{"/system.slice", 8162312192}, {"/dev-hugepages.mount", 0}}
	before := openDescriptors(t)
	if got := f.TopLevelUsage(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
