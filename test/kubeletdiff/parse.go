package kubeletdiff

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	kubelet "k8s.io/kubernetes/pkg/kubelet/eviction"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// written are the four maps as a user writes them.
type written struct {
	Hard       map[string]string `json:"evictionHard,omitempty"`
	Soft       map[string]string `json:"evictionSoft,omitempty"`
	SoftGrace  map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	MinReclaim map[string]string `json:"evictionMinimumReclaim,omitempty"`
}

func (w written) String() string {
	b, err := json.Marshal(w)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// meaning is what one threshold came to: an amount, or a share of the capacity.
type meaning struct {
	quantity *big.Int // nil for a share
	share    *big.Rat
	grace    time.Duration
}

// threshold names one threshold of a configuration.
type threshold struct {
	signal string
	soft   bool
}

// parsed is what a parser made of a configuration; err is why it refused it.
type parsed struct {
	thresholds map[threshold]meaning
	reclaims   map[string]meaning
	err        error
}

// theirs is kubelet's ParseThresholdConfig.
func theirs(w written) parsed {
	out := parsed{thresholds: map[threshold]meaning{}, reclaims: map[string]meaning{}}
	list, err := kubelet.ParseThresholdConfig(nil, w.Hard, w.Soft, w.SoftGrace, w.MinReclaim)
	if err != nil {
		out.err = err
		return out
	}
	// The list has the hard ones first; a soft one with no grace looks like a hard
	// one.
	seen := map[string]int{}
	for _, t := range list {
		name := string(t.Signal)
		seen[name]++
		_, hard := w.Hard[name]
		soft := !hard || ignored(w.Hard[name]) || seen[name] > 1
		m := meaningOf(t.Value)
		m.grace = t.GracePeriod
		out.thresholds[threshold{name, soft}] = m
		if t.MinReclaim != nil {
			out.reclaims[name] = meaningOf(*t.MinReclaim)
		}
	}
	return out
}

// ignored are the two spellings that kubelet takes for no threshold.
func ignored(s string) bool { return s == "0%" || s == "100%" }

func meaningOf(v evictionapi.ThresholdValue) meaning {
	if v.Quantity != nil {
		return meaning{quantity: ceil(*v.Quantity)}
	}
	if math.IsNaN(float64(v.Percentage)) || math.IsInf(float64(v.Percentage), 0) {
		return meaning{}
	}
	return meaning{share: new(big.Rat).SetFloat64(float64(v.Percentage))}
}

// ceil is the least whole amount that is not below the quantity: that of which
// "less than" says the same of whole numbers.
func ceil(q resource.Quantity) *big.Int {
	r, ok := new(big.Rat).SetString(q.AsDec().String())
	if !ok {
		return nil
	}
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	return n
}

// ours is the product's configuration file with these maps.
func ours(w written) parsed {
	out := parsed{thresholds: map[threshold]meaning{}, reclaims: map[string]meaning{}}
	file := map[string]any{"apiVersion": config.APIVersion, "kind": config.Kind}
	for key, m := range map[string]map[string]string{"evictionHard": w.Hard, "evictionSoft": w.Soft, "evictionSoftGracePeriod": w.SoftGrace, "evictionMinimumReclaim": w.MinReclaim} {
		if len(m) > 0 {
			file[key] = m
		}
	}
	b, err := json.Marshal(file)
	if err != nil {
		out.err = err
		return out
	}
	c, err := config.Parse(b)
	if err != nil {
		out.err = err
		return out
	}
	for name := range w.Hard { // unwritten ones keep our defaults
		if t := c.EvictionHard[eviction.Signal(name)]; !t.Off {
			out.thresholds[threshold{name, false}] = meaningOfOurs(t)
		}
	}
	for name := range w.Soft {
		if t := c.EvictionSoft[eviction.Signal(name)]; !t.Off {
			m := meaningOfOurs(t)
			m.grace = c.EvictionSoftGrace[eviction.Signal(name)]
			out.thresholds[threshold{name, true}] = m
		}
	}
	for name := range w.MinReclaim {
		for _, soft := range []bool{false, true} {
			if _, ok := out.thresholds[threshold{name, soft}]; ok { // kubelet keeps it with a threshold only
				out.reclaims[name] = meaningOfOurs(c.EvictionMinimumReclaim[eviction.Signal(name)])
			}
		}
	}
	return out
}

func meaningOfOurs(t eviction.Threshold) meaning {
	if t.Share != nil {
		return meaning{share: t.Share}
	}
	return meaning{quantity: big.NewInt(t.Quantity)}
}

// departure is one thing that our parser does otherwise on purpose.
type departure struct {
	name string
	// has says whether a configuration is about it.
	has func(w written) bool
}

var decimal = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// share is the exact part of 100 that a percentage says, nil for what is no plain
// decimal number.
func share(text string) *big.Rat {
	number, ok := strings.CutSuffix(text, "%")
	if !ok || !decimal.MatchString(number) {
		return nil
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil
	}
	return r
}

// departures lists all there are; nothing else may differ.
func departures() []departure {
	percent := func(f func(text string, s *big.Rat) bool) func(written) bool {
		return func(w written) bool {
			for _, m := range []map[string]string{w.Hard, w.Soft, w.MinReclaim} {
				for _, text := range m {
					if strings.HasSuffix(text, "%") && f(text, share(text)) {
						return true
					}
				}
			}
			return false
		}
	}
	hundred := big.NewRat(100, 1)
	return []departure{
		{"auto", func(w written) bool { return w.Hard["memory.available"] == "auto" }},
		{"a percentage is a plain decimal number of at most 32 characters with one percent sign", percent(func(text string, s *big.Rat) bool {
			return s == nil || len(text) > 33
		})},
		{"0 and 100 percent are off however they are written", percent(func(text string, s *big.Rat) bool {
			return s != nil && !ignored(text) && (s.Sign() == 0 || s.Cmp(hundred) == 0)
		})},
		{"a percentage between 100 and what a float32 rounds to 100 is refused, and one that it rounds to 0 is none", percent(func(_ string, s *big.Rat) bool {
			if s == nil {
				return false
			}
			f, _ := s.Float32()
			return s.Cmp(hundred) > 0 && f/100 <= 1 || s.Sign() != 0 && f/100 == 0
		})},
		{"a minimum reclaim of 100 percent and more is refused", func(w written) bool {
			for _, text := range w.MinReclaim {
				if s := share(text); s != nil && s.Cmp(hundred) >= 0 {
					return true
				}
			}
			return false
		}},
		{"an amount of 2^63 and more is refused", func(w written) bool {
			for _, m := range []map[string]string{w.Hard, w.Soft, w.MinReclaim} {
				for _, text := range m {
					if q, err := resource.ParseQuantity(text); err == nil && !ceil(q).IsInt64() {
						return true
					}
				}
			}
			return false
		}},
		{"a grace period is at most a hundred years", func(w written) bool {
			for _, text := range w.SoftGrace {
				if d, err := time.ParseDuration(text); err == nil && d > 100*365*24*time.Hour {
					return true
				}
			}
			return false
		}},
	}
}

// compareParsed returns what differs, "" for nothing.
func compareParsed(w written) string {
	return compare(theirs(w), ours(w))
}

// compare returns what differs, "" for nothing.
func compare(k, o parsed) string {
	if (k.err != nil) != (o.err != nil) {
		return fmt.Sprintf("kubelet: %v; ours: %v", k.err, o.err)
	}
	if k.err != nil {
		return ""
	}
	for t, m := range k.thresholds {
		if text := compareMeaning(m, o.thresholds[t]); text != "" {
			return fmt.Sprintf("%+v: %s", t, text)
		}
	}
	for t := range o.thresholds {
		if _, ok := k.thresholds[t]; !ok {
			return fmt.Sprintf("%+v: ours has it, kubelet has not", t)
		}
	}
	for s, m := range k.reclaims {
		if text := compareMeaning(m, o.reclaims[s]); text != "" {
			return fmt.Sprintf("minimum reclaim of %s: %s", s, text)
		}
	}
	return ""
}

// compareMeaning: amounts are equal; shares as far as a float32 goes.
func compareMeaning(k, o meaning) string {
	differ := fmt.Sprintf("kubelet %v %v %s, ours %v %v %s", k.quantity, k.share, k.grace, o.quantity, o.share, o.grace)
	switch {
	case k.grace != o.grace, (k.quantity == nil) != (o.quantity == nil), (k.share == nil) != (o.share == nil):
		return differ
	case k.quantity != nil && k.quantity.Cmp(o.quantity) != 0:
		return differ
	case k.share != nil:
		exact, _ := o.share.Float64()
		float, _ := k.share.Float64()
		if math.Abs(exact-float) > exact/(1<<22) {
			return differ
		}
	}
	return ""
}
