package eviction

import (
	"errors"
	"strings"
	"testing"
)

func TestParseThreshold(t *testing.T) {
	const capacity = 16 << 30
	for _, tt := range []struct {
		text   string
		amount uint64
		off    bool
		auto   bool
		err    string
	}{
		{text: "100Mi", amount: 100 << 20},
		{text: "1.5Gi", amount: 3 << 29},
		{text: "104857600", amount: 104857600},
		{text: "500M", amount: 500_000_000},
		{text: "1m", amount: 1}, // a thousandth of a byte rounds up, as Quantity.Value does
		{text: "10%", amount: capacity / 10},
		{text: "7.5%", amount: 1288490188},
		{text: "0.0001%", amount: 17179},
		{text: "99.9999999999%", amount: 17179869183},
		{text: "0%", off: true},
		{text: "0.0%", off: true},
		{text: "100%", off: true},
		{text: "auto", auto: true},
		{text: "0", err: "must be positive"},
		{text: "0Mi", err: "must be positive"},
		{text: "-1Gi", err: "must be positive"},
		{text: "-5%", err: "between 0% and 100%"},
		{text: "101%", err: "between 0% and 100%"},
		{text: "10%%", err: "plain decimal number"},
		{text: "NaN%", err: "plain decimal number"},
		{text: "1/3%", err: "plain decimal number"},
		{text: "1e1%", err: "plain decimal number"},
		{text: "%", err: "plain decimal number"},
		{text: strings.Repeat("9", 40) + "%", err: "plain decimal number"},
		{text: "", err: "not a quantity"},
		{text: "lots", err: "not a quantity"},
		{text: "5Mib", err: "not a quantity"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			got, err := ParseThreshold(tt.text)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Off != tt.off || got.Auto != tt.auto {
				t.Errorf("off %v auto %v, want %v %v", got.Off, got.Auto, tt.off, tt.auto)
			}
			if !tt.auto && got.Resolve(capacity) != tt.amount {
				t.Errorf("amount %d, want %d", got.Resolve(capacity), tt.amount)
			}
		})
	}
}

func TestZeroIsPointedToTheWayOff(t *testing.T) {
	_, err := ParseThreshold("0")
	if !errors.Is(err, ErrNotPositive) || !strings.Contains(err.Error(), `"0%"`) {
		t.Errorf("error %v does not say how to turn the signal off", err)
	}
}

func TestResolveIsExact(t *testing.T) {
	// kubelet's float32 makes 10 % of this capacity 1689131 bytes too large.
	third, err := ParseThreshold("10%")
	if err != nil {
		t.Fatal(err)
	}
	const capacity = 1_134_000_000_000_007
	if got, want := third.Resolve(capacity), uint64(capacity/10); got != want {
		t.Errorf("10 %% of %d = %d, want %d", uint64(capacity), got, want)
	}
	if got := third.Resolve(^uint64(0)); got != (^uint64(0))/10 {
		t.Errorf("10 %% of the largest number = %d", got)
	}
}

func TestMetIsStrict(t *testing.T) {
	if Met(100, 100) || !Met(99, 100) || Met(0, 0) {
		t.Error("met must mean strictly below; an amount of 0 is never met")
	}
}

func TestAutoMemory(t *testing.T) {
	const gi = 1 << 30
	for _, tt := range []struct {
		name                    string
		total, minFree, kubelet uint64
		want                    uint64
	}{
		{"4 GiB: 10 % is less than 500Mi", 4 * gi, 0, 0, 4 * gi / 10},
		{"16 GiB: 500Mi", 16 * gi, 67584 << 10, 0, 500 * mi},
		{"64 GiB: 2 %", 64 * gi, 0, 0, 64 * gi / 50},
		{"large min_free_kbytes (bugs.md B04)", 256 * gi, 4194304 << 10, 0, 6*gi + 256*mi},
		{"kubelet far below", 16 * gi, 0, 100 * mi, 500 * mi},
		{"kubelet close below", 16 * gi, 0, 450 * mi, 550 * mi},
		{"kubelet above", 16 * gi, 0, 2 * gi, 2*gi + 2*gi/10},
		{"nothing", 0, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := AutoMemory(tt.total, tt.minFree, tt.kubelet); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func FuzzParseThreshold(f *testing.F) {
	for _, s := range []string{"100Mi", "10%", "0%", "100%", "auto", "1e3", "-1", "NaN%", "0.1%", "99999999999999999999Gi", "1n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		th, err := ParseThreshold(s)
		if err != nil || th.Auto {
			return
		}
		const capacity = 1 << 40
		n := th.Resolve(capacity)
		if th.Off != (n == 0) && th.Share == nil {
			t.Errorf("%q: off %v but amount %d", s, th.Off, n)
		}
		if th.Share != nil && n >= capacity {
			t.Errorf("%q: a share resolved to %d of %d", s, n, uint64(capacity))
		}
	})
}
