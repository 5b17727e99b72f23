package eviction

import (
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
)

// Consumer is somebody who has memory.
type Consumer struct {
	Name  string `json:"name"` // a cgroup below the root
	Bytes uint64 `json:"bytes"`
}

// consumersNamed is how many of them are named in a sentence.
const consumersNamed = 3

// consumers says who has the memory, the biggest first.
func (e *Engine) consumers() []Consumer {
	if e.topLevel == nil {
		return nil
	}
	return e.topLevel()
}

// consumersText names the biggest.
func consumersText(c []Consumer) string {
	var names []string
	for _, x := range c[:min(len(c), consumersNamed)] {
		names = append(names, fmt.Sprintf("%s %s", strings.TrimPrefix(x.Name, "/"), quantity(x.Bytes)))
	}
	return strings.Join(names, ", ")
}

// outsideText says that the pods are not to blame (bugs.md B14).
func outsideText(c []Consumer) string {
	const text = "pressure from outside pods: all that could be evicted could not give back what is missing"
	if len(c) == 0 {
		return text
	}
	return text + "; most memory is in " + consumersText(c)
}

// saidNone is the last reason for having no victim that was reported, and until
// when the breaker was open that it came from.
type saidNone struct {
	why   NoVictim
	until int64 // unix ns
}

// sayWhenNobody reports, once per breach and reason, that a threshold is met and
// no pod is taken: the decision not to act is a decision.
func (e *Engine) sayWhenNobody() {
	for i, h := range e.sampler.hards() {
		why := NoVictim(h.latest.noVictim.Load())
		if !h.latest.met.Load() {
			why = Chosen
		}
		e.mu.Lock()
		before := e.saidNone[i]
		// A breaker that opened anew is said again, though a kill between may
		// have been over before anybody looked here.
		said := saidNone{why, max(before.until, h.latest.breakerUntil.Load())}
		e.saidNone[i] = said
		e.mu.Unlock()
		if why != Chosen && said != before {
			e.sayWhy(h, why)
		}
	}
}

// sayWhy reports why nobody is taken.
func (e *Engine) sayWhy(h *hard, why NoVictim) {
	rules, minFree := e.settings().Rules, e.sampler.minFree
	if h == &e.sampler.allocatable {
		rules, minFree = e.settings().Allocatable, 0
	}
	now := e.signalNow(h, &rules, minFree)
	r := &Report{
		ID: e.holds.NextID(), Time: e.clock().UTC(), Signal: h.signal, Outcome: OutcomeNoVictim, Mode: mode(rules),
		Summary: why.String(), Memory: now.MemoryReport, Candidates: e.candidatesNow(&rules, now.Available),
	}
	level := logrus.WarnLevel
	switch why {
	case Cascade, OutsidePressure:
		level, r.Consumers = logrus.ErrorLevel, e.consumers()
		if text := consumersText(r.Consumers); text != "" {
			r.Summary += "; most memory is in " + text
		}
	case BudgetSpent:
		level = logrus.ErrorLevel
	}
	e.log.WithFields(logrus.Fields{"signal": h.signal, "available": now.Available, "threshold": rules.Amount}).
		Log(level, string(h.signal)+" is below its threshold and nothing is evicted: "+r.Summary)
	e.keep(r)
	if !rules.Observe {
		e.thresholdMet(h.signal)
	}
}

// candidatesNow measures every pod of the plan and ranks them.
func (e *Engine) candidatesNow(rules *Rules, available uint64) []CandidateReport {
	plan := e.sampler.plan.Load()
	if plan == nil {
		return nil
	}
	cands := make([]Candidate, len(plan.Pods))
	for i := range plan.Pods {
		plan.Pods[i].measure(&cands[i])
	}
	return candidateReports(plan.Pods, cands, rules.rankBy(available))
}
