package main

import "slices"

// difference is a spec that ended differently.
type difference struct {
	Name            string
	Direct, Proxied string // states
	Reason          string // of whichever did not pass
}

// regression is true for what the proxy may not do. Skipping counts: many
// specs skip when a field they look for is missing.
func (d difference) regression() bool { return d.Direct == passed && d.Proxied != passed }

// flaky is true for specs that flip by themselves, also without a proxy.
func (d difference) flaky() bool { return slices.Contains(knownFlaky(), d.Name) }

// knownFlaky are specs that are seen to fail now and then directly on
// containerd 2.4.2. One that fails through the proxy is run there again, and
// must pass once.
func knownFlaky() []string {
	return []string{
		// containerd itself is not free of the race the spec is about: a container
		// made while a second plugin synchronizes may reach it in neither way.
		"[k8s.io] NRI plugin synchronization should receive information about all containers without the race condition during initialization",
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
