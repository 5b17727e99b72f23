package eviction

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// ResourceReport says what a decision about disk, inodes or PIDs was about.
type ResourceReport struct {
	Unit Unit `json:"unit"`
	// Path is on the file system, Device names that (major:minor); none for PIDs.
	Path   string `json:"path,omitempty"`
	Device string `json:"device,omitempty"`
	Layout Layout `json:"layout,omitempty"`
	// Read is when the number was read.
	Read       time.Time `json:"read,omitzero"`
	MinReclaim uint64    `json:"minReclaim"`
	// Reclaimed is what was freed before a pod had to go.
	Reclaimed *ReclaimedDisk `json:"reclaimed,omitempty"`
}

// SlowExplanation is who would be evicted for a signal of disk, inodes or PIDs.
// Signals of the same file system and unit have one.
type SlowExplanation struct {
	Signals    []Signal          `json:"signals"`
	Unit       Unit              `json:"unit"`
	Path       string            `json:"path,omitempty"`
	Candidates []CandidateReport `json:"candidates"`
	// Next would be the first to go if a hard threshold were met now; NoNext says
	// why there is none.
	Next   *inventory.Ref `json:"next,omitempty"`
	NoNext string         `json:"noNext,omitempty"`
}

const outsideSlow = "pressure from outside pods: all that could be evicted could not give back what is missing"

// deviceText is major:minor of st_dev.
func deviceText(dev uint64) string {
	if dev == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
}

// amountText is an amount in a unit.
func amountText(n uint64, u Unit) string {
	if u == Bytes {
		return quantity(n)
	}
	return strconv.FormatUint(n, 10) + " " + string(u)
}

// summary is one sentence with the reason.
func (s *slowDecision) summary(d *Decision) string {
	pod, c := d.pod(), &d.Candidates[d.Victim]
	where := ""
	if s.reading.Path != "" {
		where = " on the file system of " + s.reading.Path
	}
	text := fmt.Sprintf("%s %s is below %s%s; %s has %s there, a stop gives back %s",
		d.Signal, amountText(d.Verdict.Available, s.unit), amountText(d.limit(), s.unit), where,
		pod.String(), amountText(c.Usage, s.unit), amountText(c.Gain, s.unit))
	if left := s.detail(d.Victim).deletion; left > 0 && c.Gain < c.Usage {
		text += fmt.Sprintf(", and only its deletion by kubelet %s", amountText(left, s.unit))
	}
	if d.soft != nil {
		text = fmt.Sprintf("soft threshold %s, met for longer than %s: %s", amountText(d.Rules.Amount, s.unit), d.soft.Grace, text)
	}
	return text
}

func (s *slowDecision) detail(i int) diskDetail {
	if i < len(s.details) {
		return s.details[i]
	}
	return diskDetail{}
}

// slowMemory is what a reading looks like where memory's samples are told: there
// is one number only.
func slowMemory(r *Reading, available, amount uint64) MemoryReport {
	return MemoryReport{
		Capacity: r.Capacity, Available: available, AvailableKernel: available, AvailableKubelet: available,
		Threshold: amount, Met: Met(available, amount),
	}
}

// slowReport describes a decision about disk, inodes or PIDs with all its inputs.
func (e *Engine) slowReport(d *Decision, outcome string) *Report {
	s, victim := d.slow, d.pod().Ref
	r := &Report{
		ID: d.ID, Time: d.At.UTC(), Signal: d.Signal, Outcome: outcome, Mode: mode(d.Rules), Summary: s.summary(d), Soft: d.soft,
		Victim: &victim, Memory: slowMemory(&s.reading, d.Verdict.Available, d.Rules.Amount),
		Resource:   e.resourceReport(&s.reading, s.unit, d.Rules.MinReclaim, s.reclaimed),
		Candidates: slowCandidates(d.Plan.Pods, d.Candidates, s.details, s.unit, d.Rules.Amount-min(d.Rules.Amount, d.Verdict.Available), d.At),
	}
	if d.Outside {
		r.Summary += "; " + outsideSlow
	}
	return r
}

func (e *Engine) resourceReport(r *Reading, u Unit, minReclaim uint64, done *ReclaimedDisk) *ResourceReport {
	out := &ResourceReport{Unit: u, Path: r.Path, Device: deviceText(r.Device), MinReclaim: minReclaim, Reclaimed: done}
	if u != Tasks {
		out.Layout = e.slow.currentLayout()
	}
	if !r.At.IsZero() {
		out.Read = r.At.UTC()
	}
	return out
}

// slowCandidates lists the pods of a plan in rank order, the barred ones last.
func slowCandidates(pods []PlanPod, cands []Candidate, details []diskDetail, u Unit, shortage uint64, now time.Time) []CandidateReport {
	rank := ourDiskRank(shortage)
	order := inRankOrder(pods, func(a, b int) int { return compareDisk(&cands[a], &cands[b], u, rank) })
	kubelet := kubeletDiskRanks(pods, cands, u)
	out := make([]CandidateReport, 0, len(pods))
	for n, i := range order {
		p, c := &pods[i], &cands[i]
		r := CandidateReport{
			Ref: p.Ref, Rank: n + 1, KubeletRank: kubelet[i], Ending: p.Ending, StorageRequest: p.StorageRequest, QoS: p.QoS, Priority: p.Priority, Request: inventory.Value[int64]{Source: inventory.FromDefault},
			Usage: c.Usage, UsageKnown: c.Known, Gain: c.Gain, OverRequest: overDisk(c, u),
			Barred: p.Barred, NoDirect: p.NoDirect, Cgroup: p.CgroupPath,
		}
		if u == Bytes && storageKnown(p.StorageRequest) {
			r.Request = p.StorageRequest
		}
		if i < len(details) {
			r.Deletion, r.Incomplete = details[i].deletion, details[i].incomplete
			if at := details[i].oldest; !at.IsZero() {
				r.UsageAge = max(0, now.Sub(at))
			}
		}
		out = append(out, r)
	}
	return out
}

// saySlowNobody reports, once per reason and breach, that a slow threshold is met
// (a soft one past its grace) and no pod can be taken.
func (e *Engine) saySlowNobody(w *softWatch, none NoVictim, now time.Time) {
	e.soft.mu.Lock()
	w.why = none.String()
	if !w.noted[none] {
		w.noted[none] = true
		if w.key.hard {
			e.slowEpisodes[w.key.Signal].note(none)
		} else {
			e.counters.decided(w.key.Signal, KindSoft, OutcomeNoVictim, none.Reason())
		}
	}
	said := w.said == w.why
	w.said = w.why
	key, last, done := w.key, w.last, w.disk
	var soft *SoftReport
	if !key.hard {
		need := key.Amount + key.MinReclaim
		soft = &SoftReport{
			Grace: key.Grace, MinReclaim: key.MinReclaim, MetSince: w.firstMet.UTC(), MaxPodGrace: e.maxPodGrace(),
			Shortage: need - min(need, last.Available),
		}
	}
	e.soft.mu.Unlock()
	if said {
		return
	}
	r := e.slowNobody(key, last, OutcomeNoVictim, none.String(), done)
	r.Soft = soft
	level := logrus.WarnLevel
	if none == Cascade || none == OutsidePressure || none == BudgetSpent {
		level = logrus.ErrorLevel
	}
	e.log.WithFields(logrus.Fields{"signal": key.Signal, "available": last.Available, "threshold": key.Amount, "path": r.Resource.Path}).
		Log(level, string(key.Signal)+" is below its threshold and nothing is evicted: "+r.Summary)
	e.keep(r)
}

// reportReclaimedDisk says that removing what nobody needs was enough.
func (e *Engine) reportReclaimedDisk(key watchKey, last observation, done *ReclaimedDisk) {
	u := key.Signal.Unit()
	text := fmt.Sprintf("%s were freed before anybody had to go (containers removed: %d, images: %d): available is %s",
		amountText(done.Freed, u), done.Containers, done.Images, amountText(last.Available, u))
	r := e.slowNobody(key, last, OutcomeReclaimed, text, done)
	if !key.hard {
		r.Soft = &SoftReport{Grace: key.Grace, MinReclaim: key.MinReclaim, MaxPodGrace: e.maxPodGrace()}
	}
	e.log.WithFields(logrus.Fields{"signal": key.Signal, "available": last.Available, "threshold": key.Amount}).Info(r.Summary)
	e.keep(r)
}

// slowNobody is a decision about a slow threshold without a victim.
func (e *Engine) slowNobody(key watchKey, last observation, outcome, summary string, done *ReclaimedDisk) *Report {
	_, reading := e.slow.reading(key.Signal)
	r := &Report{
		ID: e.holds.NextID(), Time: e.clock().UTC(), Signal: key.Signal, Outcome: outcome, Mode: mode(e.settings().Rules), Summary: summary,
		Memory:   slowMemory(&reading, last.Available, key.Amount),
		Resource: e.resourceReport(&reading, key.Signal.Unit(), key.MinReclaim, done),
	}
	if plan := e.sampler.plan.Load(); plan != nil {
		cands, details := e.measureSlow(plan, key.Signal, last.Device)
		r.Candidates = slowCandidates(plan.Pods, cands, details, key.Signal.Unit(), key.Amount-min(key.Amount, last.Available), r.Time)
	}
	return r
}

// explainSlow measures every pod now for each file system and for PIDs.
func (e *Engine) explainSlow() []SlowExplanation {
	plan, now := e.sampler.plan.Load(), e.clock()
	if plan == nil {
		return nil
	}
	type subject struct {
		device uint64
		unit   Unit
	}
	at := map[subject]int{}
	var out []SlowExplanation
	for _, k := range e.thresholds(e.settings()) {
		_, r := e.slow.reading(k.Signal)
		if !k.slow || r.At.IsZero() {
			continue
		}
		on := subject{r.Device, k.Signal.Unit()}
		if i, there := at[on]; there {
			if !slices.Contains(out[i].Signals, k.Signal) {
				out[i].Signals = append(out[i].Signals, k.Signal)
			}
			continue
		}
		at[on] = len(out)
		cands, details := e.measureSlow(plan, k.Signal, r.Device)
		shortage := k.Amount - min(k.Amount, r.Available)
		x := SlowExplanation{
			Signals: []Signal{k.Signal}, Unit: on.unit, Path: r.Path,
			Candidates: slowCandidates(plan.Pods, cands, details, on.unit, shortage, now),
		}
		victim, why := chooseDisk(cands, deletions(details), plan.barred, on.unit, false, ourDiskRank(shortage))
		if victim >= 0 {
			x.Next = &plan.Pods[victim].Ref
		} else {
			x.NoNext = why.String()
		}
		out = append(out, x)
	}
	return out
}
