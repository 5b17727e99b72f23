package eviction

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Threshold is the value of one threshold: an amount, a share of the capacity,
// or off.
type Threshold struct {
	// Quantity is the amount in the signal's unit (bytes, inodes, PIDs); used
	// when Share is nil.
	Quantity int64
	// Share is the exact part of the capacity, above 0 and below 1; nil for an
	// amount.
	Share *big.Rat
	// Off says that the signal is not to be acted on ("0%" or "100%").
	Off bool
	// Auto says that the value is computed from the machine (AutoMemory).
	Auto bool
	// Text is the value as it was written, for messages.
	Text string
}

// ErrNotPositive is returned by ParseThreshold for amounts of zero and below,
// which kubelet refuses as well.
var ErrNotPositive = errors.New(`must be positive; write "0%" to turn the signal off`)

// ParseThreshold reads a threshold as kubelet's parseThresholdStatement does
// (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go): a quantity above zero or
// a percentage, where "0%" and "100%" turn the signal off. Departures: a
// percentage is kept as an exact fraction instead of a float32, "NaN%" and
// repeated percent signs are errors, and "auto" is accepted.
func ParseThreshold(s string) (Threshold, error) {
	if s == "auto" {
		return Threshold{Auto: true, Text: s}, nil
	}
	if number, ok := strings.CutSuffix(s, "%"); ok {
		return parsePercentage(s, number)
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return Threshold{}, fmt.Errorf("not a quantity such as 500Mi nor a percentage such as 10%%: %w", err)
	}
	if q.Sign() <= 0 {
		return Threshold{}, ErrNotPositive
	}
	v := q.Value()
	if v <= 0 { // Value saturates; a fraction of a byte rounds up
		return Threshold{}, errors.New("too large: at most 9223372036854775807")
	}
	return Threshold{Quantity: v, Text: s}, nil
}

func parsePercentage(s, number string) (Threshold, error) {
	if len(number) > 32 || strings.ContainsAny(number, "/eExXpP_") {
		return Threshold{}, errors.New("a percentage is a plain decimal number followed by %, such as 7.5%")
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		return Threshold{}, errors.New("a percentage is a plain decimal number followed by %, such as 7.5%")
	}
	hundred := big.NewRat(100, 1)
	if r.Sign() < 0 || r.Cmp(hundred) > 0 {
		return Threshold{}, errors.New("a percentage lies between 0% and 100%")
	}
	if r.Sign() == 0 || r.Cmp(hundred) == 0 {
		return Threshold{Off: true, Text: s}, nil
	}
	return Threshold{Share: r.Quo(r, hundred), Text: s}, nil
}

// Resolve returns the threshold as an amount for this capacity. A share is
// rounded down, in exact integer arithmetic. It is 0 for a threshold that is
// off; Auto has to be replaced (AutoMemory) before.
func (t Threshold) Resolve(capacity uint64) uint64 {
	switch {
	case t.Off:
		return 0
	case t.Share == nil:
		return uint64(max(t.Quantity, 0))
	}
	n := new(big.Int).SetUint64(capacity)
	n.Mul(n, t.Share.Num())
	n.Quo(n, t.Share.Denom())
	if !n.IsUint64() {
		return 0
	}
	return n.Uint64()
}

// Met says whether available lies strictly below the amount of a threshold,
// as kubelet's thresholdsMet does. An amount of 0 is never met.
func Met(available, amount uint64) bool { return available < amount }

const mi = 1 << 20

// AutoMemory is the default memory.available threshold in bytes (design §7):
// the smaller of 10 % of the RAM and the largest of 500Mi, 2 % of the RAM and
// 1.5 × min_free_kbytes + 256Mi. kubeletHard is kubelet's own hard threshold in
// bytes, 0 when it is not known; ours then is at least kubelet's + max(100Mi,
// 10 %) unless kubelet's is clearly lower already.
func AutoMemory(memTotal, minFree, kubeletHard uint64) uint64 {
	auto := max(500*mi, memTotal/50, minFree+minFree/2+256*mi)
	auto = min(auto, memTotal/10)
	if kubeletHard > 0 {
		auto = max(auto, kubeletHard+max(100*mi, kubeletHard/10))
	}
	return auto
}

// DefaultFloor is the floor of the early band in bytes when kubelet's own hard
// memory threshold is not known: kubelet's default of 100Mi.
const DefaultFloor = 100 * mi
