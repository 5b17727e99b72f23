package eviction

import (
	"math/rand/v2"
	"slices"
	"testing"
)

const gi = 1 << 30

func known(uid string, priority int32, request, usage uint64) Candidate {
	return Candidate{UID: uid, Priority: priority, Request: request, RequestKnown: true, Usage: usage, Gain: usage, Known: true}
}

func order(cands []Candidate, o RankOptions) []string {
	sorted := slices.Clone(cands)
	slices.SortFunc(sorted, func(a, b Candidate) int { return compareMemory(&a, &b, o) })
	var out []string
	for _, c := range sorted {
		out = append(out, c.UID)
	}
	return out
}

func TestRank(t *testing.T) {
	unknownRequest := Candidate{UID: "unknown", Usage: 9 * gi, Gain: 9 * gi, Known: true}
	tiny := known("tiny", -10, 0, 2<<20)
	for _, tt := range []struct {
		name  string
		cands []Candidate
		o     RankOptions
		want  []string
	}{
		{"QoS is not the order (bugs.md B25)", []Candidate{
			known("p-gu", 0, 4*gi, 39*gi/10), known("p-be", 0, 0, 1*gi), known("p-bu", 0, 1*gi, 3*gi),
		}, RankOptions{}, []string{"p-bu", "p-be", "p-gu"}},
		{"over request goes before lower priority", []Candidate{
			known("low", -5, 2*gi, 1*gi), known("over", 100, 1*gi, 2*gi),
		}, RankOptions{}, []string{"over", "low"}},
		{"lower priority goes before larger excess", []Candidate{
			known("big", 10, 0, 8*gi), known("low", 0, 0, 1*gi),
		}, RankOptions{}, []string{"low", "big"}},
		{"equal excess: larger usage", []Candidate{
			known("a", 0, 0, 1*gi), known("b", 0, 1*gi, 2*gi),
		}, RankOptions{}, []string{"b", "a"}},
		{"all equal: UID", []Candidate{known("b", 0, 0, gi), known("a", 0, 0, gi)}, RankOptions{}, []string{"a", "b"}},
		{"no numbers: last, not first", []Candidate{{UID: "none", Priority: -100}, known("a", 0, 2*gi, gi)}, RankOptions{}, []string{"a", "none"}},
		{"an unknown request is not over", []Candidate{unknownRequest, known("over", 0, 0, gi)}, RankOptions{}, []string{"over", "unknown"}},
		{"small gain stays in its place without the departure", []Candidate{known("hog", 0, 0, 4*gi), tiny}, RankOptions{Shortage: gi}, []string{"tiny", "hog"}},
		{"small gain last within the class", []Candidate{known("hog", 0, 0, 4*gi), tiny}, RankOptions{Shortage: gi, SmallGainLast: true}, []string{"hog", "tiny"}},
		{"small gain over request still before a pod inside its request", []Candidate{known("in", 0, 5*gi, 4*gi), tiny}, RankOptions{Shortage: gi, SmallGainLast: true}, []string{"tiny", "in"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := order(tt.cands, tt.o); !slices.Equal(got, tt.want) {
				t.Errorf("order %v, want %v", got, tt.want)
			}
		})
	}
}

// The order must be total, or which pod dies would depend on the order of a
// list.
func TestRankIsTotal(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(i int) Candidate {
		return Candidate{
			UID: string(rune('a' + i)), Priority: int32(r.IntN(3)), Request: uint64(r.IntN(3)) * gi, RequestKnown: r.IntN(4) > 0,
			Usage: uint64(r.IntN(4)) * gi, Gain: uint64(r.IntN(3)) * 100 * mi, Known: r.IntN(5) > 0,
		}
	}
	for range 2000 {
		cands := make([]Candidate, 6)
		for i := range cands {
			cands[i] = random(i)
		}
		o := RankOptions{Shortage: uint64(r.IntN(3)) * gi, SmallGainLast: r.IntN(2) == 0}
		want := order(cands, o)
		r.Shuffle(len(cands), func(i, j int) { cands[i], cands[j] = cands[j], cands[i] })
		if got := order(cands, o); !slices.Equal(got, want) {
			t.Fatalf("order depends on the input order: %v, %v for %+v", got, want, cands)
		}
		for i := range cands {
			for j := range cands {
				if a, b := compareMemory(&cands[i], &cands[j], o), compareMemory(&cands[j], &cands[i], o); a != -b {
					t.Fatalf("not antisymmetric: %+v, %+v", cands[i], cands[j])
				}
			}
		}
	}
}

func TestChoose(t *testing.T) {
	over, in := known("over", 0, gi, 2*gi), known("in", 0, 4*gi, 2*gi)
	nothing := known("nothing", -1, 0, minGain-1)
	soft := known("soft", 100, 4*gi, gi)
	soft.Evicting = true
	softNothing := nothing
	softNothing.Evicting = true
	dying := over
	dying.Out = true
	for _, tt := range []struct {
		name   string
		cands  []Candidate
		barred []bool
		early  bool
		want   int
		why    NoVictim
	}{
		{"the first by rank", []Candidate{in, over}, []bool{false, false}, false, 1, Chosen},
		{"barred is passed over", []Candidate{in, over}, []bool{false, true}, false, 0, Chosen},
		{"early band: inside the request is safe", []Candidate{in}, []bool{false}, true, -1, WithinRequest},
		{"early band: over the request is not", []Candidate{in, over}, []bool{false, false}, true, 1, Chosen},
		{"early band: an unknown request is safe", []Candidate{{UID: "u", Usage: gi, Gain: gi, Known: true}}, []bool{false}, true, -1, WithinRequest},
		{"below the floor everybody can be it", []Candidate{in}, []bool{false}, false, 0, Chosen},
		{"who frees nothing is no victim", []Candidate{nothing}, []bool{false}, false, -1, NothingToFree},
		{"who has no numbers is no victim", []Candidate{{UID: "x"}}, []bool{false}, false, -1, NoNumbers},
		{"all barred", []Candidate{over}, []bool{true}, false, -1, AllBarred},
		{"no pods", nil, nil, false, -1, NoPods},
		{"a soft eviction is shortened first, in the early band too", []Candidate{over, soft}, []bool{false, false}, true, 1, Chosen},
		{"and before whoever would rank first", []Candidate{over, soft}, []bool{false, false}, false, 1, Chosen},
		{"not one that would free nothing", []Candidate{over, softNothing}, []bool{false, false}, false, 0, Chosen},
		{"who is dying is no victim", []Candidate{dying}, []bool{false}, false, -1, AllBarred},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, why := choose(tt.cands, tt.barred, tt.early, RankOptions{})
			if got != tt.want || why != tt.why {
				t.Errorf("victim %d (%v), want %d (%v)", got, why, tt.want, tt.why)
			}
		})
	}
}
