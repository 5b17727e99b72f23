package kubeletdiff

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// named returns the departure that a configuration is about, "" for none.
func named(w written) string {
	for _, d := range departures() {
		if d.has(w) {
			return d.name
		}
	}
	return ""
}

// Our configuration takes what kubelet takes and makes the same of it, but for
// the departures that have a name.
func TestParse(t *testing.T) {
	n := number(t, "KUBELETDIFF_PARSE", 200_000)
	seed := uint64(number(t, "KUBELETDIFF_SEED", 1))
	g := generator{rand.New(rand.NewPCG(seed, 0x7061727365))}
	accepted, refused, differed := 0, 0, map[string]int{}
	for range n {
		w := g.written()
		name := named(w)
		diff := compareParsed(w)
		switch {
		case diff != "" && name == "":
			t.Fatalf("seed %d: %s\n%s", seed, w, diff)
		case diff != "":
			differed[name]++
		case theirs(w).err != nil:
			refused++
		default:
			accepted++
		}
	}
	t.Logf("%d configurations: %d taken by both with the same meaning, %d refused by both", n, accepted, refused)
	for _, d := range departures() {
		t.Logf("%6d differed: %s", differed[d.name], d.name)
		if n >= 200_000 && differed[d.name] == 0 {
			t.Errorf("no configuration showed: %s", d.name)
		}
	}
	if n >= 1000 && (accepted < n/20 || refused < n/20) {
		t.Error("too few of one kind to mean anything")
	}
}

// written makes a configuration, mostly of sensible values.
func (g generator) written() written {
	w := written{Hard: map[string]string{}, Soft: map[string]string{}, SoftGrace: map[string]string{}, MinReclaim: map[string]string{}}
	for range 1 + g.IntN(2) {
		s := g.signal()
		switch g.IntN(4) {
		case 0, 1:
			w.Hard[s] = g.value()
		case 2:
			w.Soft[s] = g.value()
			if !g.chance(5) {
				w.SoftGrace[s] = g.duration()
			}
		default:
			w.Hard[s] = "1Gi"
			w.MinReclaim[s] = g.value()
		}
	}
	return w
}

func (g generator) signal() string {
	if g.chance(3) {
		return g.pick("memory", "memory.available ", "", "Memory.available", "nodefs.inodes")
	}
	all := eviction.Signals()
	return string(all[g.IntN(len(all))])
}

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) duration() string {
	return g.pick("0", "0s", "90s", "1m30s", "1.5h", "-1s", "", "5", "876000h", "876001h", "1d", "100us", "-0s", "+3s", ".5s", "1h ", "2562047h")
}

func (g generator) value() string {
	number := g.pick("0", "1", "10", "100", "7.5", "99.99999", "100.0000001", "0.0", "00", "-1", "+5", "1e3", "1E3", "-0", ".5", "5.", "1_0", "0x10", "NaN", "inf", "-inf", "", " 5", "5 ",
		"0.00000000000000000000000000000000000000000000001", "33.333333333333333333333333333333333", "100.0", "0100", "101", "1e-50", "9223372036854775807", "9223372036854775808", "1e30", "0.1", "1.5", "50", "15", "12")
	switch g.IntN(6) {
	case 0, 1:
		return number + "%"
	case 2:
		return number
	case 3:
		return number + g.pick("Ki", "Mi", "Gi", "k", "M", "G", "m", "u", "n", "Ei", "E", "e3", "E-3", "mi", "Mib", "%%", "% ", "Mi%")
	case 4:
		var b strings.Builder
		for range 1 + g.IntN(5) {
			b.WriteString(g.pick("0", "1", "5", "9", ".", "-", "+", "e", "E", "%", "M", "i", "m", " ", "x", "n", "N", "a"))
		}
		return b.String()
	}
	return g.pick("auto", "AUTO", "1Gi", "500Mi", "5%", "10%", "0%", "100%")
}

// FuzzParse is TestParse by the fuzzer's choice.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"10%", "0%", "100%", "1Gi", "1.5", "0", "-1", "NaN%", "10%%", "1e3", "1n", "auto", "0.0%", "100.0%"} {
		f.Add("memory.available", s, "30s", "200Mi")
	}
	f.Fuzz(func(t *testing.T, signal, value, grace, reclaim string) {
		if !valid(signal, value, grace, reclaim) {
			return
		}
		for _, w := range []written{
			{Hard: map[string]string{signal: value}},
			{Soft: map[string]string{signal: value}, SoftGrace: map[string]string{signal: grace}},
			{Hard: map[string]string{signal: value}, MinReclaim: map[string]string{signal: reclaim}},
		} {
			if diff := compareParsed(w); diff != "" && named(w) == "" {
				t.Errorf("%s\n%s", w, diff)
			}
		}
	})
}

// valid: what a YAML or JSON file can hold.
func valid(all ...string) bool {
	for _, s := range all {
		if strings.ToValidUTF8(s, "") != s {
			return false
		}
		for _, r := range s {
			if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0xfffd || r == 0xfeff {
				return false
			}
		}
	}
	return true
}
