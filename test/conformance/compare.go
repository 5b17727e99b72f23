package main

import "strings"

// difference is a spec that ended differently.
type difference struct {
	Name            string
	Direct, Proxied string // states
	Reason          string // of whichever did not pass
}

// regression is true for what the proxy may not do. Skipping counts: many
// specs skip when a field they look for is missing.
func (d difference) regression() bool { return d.Direct == passed && d.Proxied != passed }

// flaky is true if the spec flips by itself, also without a proxy, and in the
// way it is known to.
func (d difference) flaky() bool {
	how, known := knownFlaky()[d.Name]
	return known && d.Proxied == skipped && strings.Contains(d.Reason, how)
}

// knownFlaky are specs that pass now and then only, directly on containerd
// 2.4.2, and what they say when they do not. They are run again, see rig.again.
//
// Both are about one race, which containerd itself has: a container made while a
// second plugin synchronizes may be told to it in neither way. The specs know
// and skip. The second one skips nearly always, and passes on a busy machine.
func knownFlaky() map[string]string {
	const group = "[k8s.io] NRI plugin synchronization should receive "
	return map[string]string{
		group + "information about all containers without the race condition during initialization": "containerd lost",
		group + "a callback for container created during the Synchronize call":                      "containerd loses containers",
	}
}

// compare returns the specs whose state differs, in the order of direct, those
// that only the proxied run has last.
func compare(direct, proxied []result) []difference {
	through := map[string]result{}
	for _, r := range proxied {
		through[r.Name] = r
	}
	var out []difference
	known := map[string]bool{}
	for _, d := range direct {
		known[d.Name] = true
		p, ok := through[d.Name]
		if !ok {
			p.State = absent
		}
		if p.State != d.State {
			reason := p.Reason
			if p.State == passed {
				reason = d.Reason
			}
			out = append(out, difference{Name: d.Name, Direct: d.State, Proxied: p.State, Reason: reason})
		}
	}
	for _, p := range proxied {
		if !known[p.Name] {
			out = append(out, difference{Name: p.Name, Direct: absent, Proxied: p.State, Reason: p.Reason})
		}
	}
	return out
}
