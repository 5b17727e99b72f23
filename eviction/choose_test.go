package eviction

import "testing"

// Below the floor nobody inside its request is taken as long as pods over theirs
// can bring available back to it.
func TestChooseHard(t *testing.T) {
	const floor = 100 * mi
	inside := Candidate{UID: "inside", Request: gi, RequestKnown: true, Usage: gi, Gain: gi, Known: true}
	over := func(gain uint64) Candidate {
		return Candidate{UID: "over", RequestKnown: true, Usage: gain, Gain: gain, Known: true}
	}
	out := over(gi)
	out.Out = true
	many := []Candidate{inside}
	for range 100 {
		many = append(many, over(mi/2))
	}
	for _, tt := range []struct {
		name      string
		available uint64
		cands     []Candidate
		barred    int // index, -1 for none
		want      string
		why       NoVictim
	}{
		{"early band", floor, []Candidate{inside}, -1, "", WithinRequest},
		{"early band, over its request", floor, []Candidate{inside, over(2 * mi)}, -1, "over", Chosen},
		{"early band, frees nothing", floor, []Candidate{inside, over(mi - 1)}, -1, "", WithinRequest},
		{"below, nobody over", floor - 1, []Candidate{inside}, -1, "inside", Chosen},
		{"below, one page lacks and it has it", floor - 4096, []Candidate{inside, over(4096)}, -1, "over", Chosen},
		{"below, less than lacks", floor - 4096, []Candidate{inside, over(4095)}, -1, "inside", Chosen},
		{"below, as much as lacks", floor - 50*mi, []Candidate{inside, over(50 * mi)}, -1, "over", Chosen},
		{"below, more than a tiny pod has", floor - 50*mi, []Candidate{inside, over(mi / 2)}, -1, "inside", Chosen},
		{"below, not enough but something", floor - 50*mi, []Candidate{inside, over(10 * mi)}, -1, "over", Chosen},
		{"below, many tiny ones", floor - 40*mi, many, -1, "inside", Chosen},
		{"below, over but barred", floor - 4096, []Candidate{inside, over(4096)}, 1, "inside", Chosen},
		{"below, over but of another signal", floor - 4096, []Candidate{inside, out}, -1, "inside", Chosen},
	} {
		barred := make([]bool, len(tt.cands))
		if tt.barred >= 0 {
			barred[tt.barred] = true
		}
		got := ""
		i, why := chooseHard(tt.cands, barred, tt.available, floor, RankOptions{Shortage: gi, SmallGainLast: true})
		if i >= 0 {
			got = tt.cands[i].UID
		}
		if got != tt.want || why != tt.why {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, got, why, tt.want, tt.why)
		}
	}
}
