package kubeletdiff

import (
	"maps"
	"slices"
)

// minimise returns the smallest scenario found that still differs, trying to
// leave out one thing at a time.
func minimise(sc *Scenario, differs func(*Scenario) bool, tries int) *Scenario {
	for progress := true; progress; {
		progress = false
		for _, smaller := range sc.smaller() {
			if tries--; tries < 0 {
				return sc
			}
			if differs(smaller) {
				sc, progress = smaller, true
				break
			}
		}
	}
	return sc
}

// smaller lists scenarios with one thing left out or made plain.
func (s *Scenario) smaller() []*Scenario {
	var out []*Scenario
	change := func(f func(*Scenario)) {
		c := s.clone()
		f(c)
		if len(c.Hard)+len(c.Soft) > 0 { // without a threshold kubelet never looks
			out = append(out, c)
		}
	}
	for i := len(s.Steps) - 1; i >= 0 && len(s.Steps) > 1; i-- {
		change(func(c *Scenario) { c.Steps = slices.Delete(c.Steps, i, i+1) })
	}
	for i := range s.Pods {
		change(func(c *Scenario) {
			c.Pods = slices.Delete(c.Pods, i, i+1)
			for j := range c.Steps {
				c.Steps[j].Pods = slices.Delete(c.Steps[j].Pods, i, i+1)
			}
		})
	}
	for sig := range s.Hard {
		change(func(c *Scenario) { delete(c.Hard, sig) })
	}
	for sig := range s.Soft {
		change(func(c *Scenario) { delete(c.Soft, sig); delete(c.SoftGrace, sig) })
	}
	for sig := range s.MinReclaim {
		change(func(c *Scenario) { delete(c.MinReclaim, sig) })
	}
	if s.EnforcePods {
		change(func(c *Scenario) { c.EnforcePods = false })
	}
	for i := range s.Steps {
		if s.Steps[i].Lasts > 0 {
			change(func(c *Scenario) { c.Steps[i].Lasts = 0 })
		}
		if s.Steps[i].Garbage != (Garbage{}) {
			change(func(c *Scenario) { c.Steps[i].Garbage = Garbage{} })
		}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if len(p.Init) > 0 || p.Overhead > 0 || p.PodLevel != nil || p.Inactive > 0 || p.Priority != nil || len(p.Containers) > 1 || p.Static || p.Grace != nil {
			change(func(c *Scenario) {
				c.Pods[i] = Pod{Name: p.Name, Containers: p.Containers[:1], Storage: p.Storage}
			})
		}
	}
	return out
}

func (s *Scenario) clone() *Scenario {
	c := *s
	c.Hard, c.Soft, c.SoftGrace, c.MinReclaim = maps.Clone(s.Hard), maps.Clone(s.Soft), maps.Clone(s.SoftGrace), maps.Clone(s.MinReclaim)
	c.Pods = slices.Clone(s.Pods)
	c.Steps = slices.Clone(s.Steps)
	for i := range c.Steps {
		c.Steps[i].Available, c.Steps[i].Pods = maps.Clone(s.Steps[i].Available), slices.Clone(s.Steps[i].Pods)
	}
	return &c
}
