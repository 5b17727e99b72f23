// Package told is what the machine of `vm powercut` and its host tell each other:
// lines on the console, and a file of what is known from before the cut.
package told

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/cri-evictd/cri-evictd/holds"
)

// Words of the machine; each begins a line.
const (
	Checked = "CHECKED" // it has got over the last cut
	Live    = "LIVE"    // pods are evicted and processes hand over from now on
	Began   = "BEGAN"   // a pod that will be evicted; its UID follows
	Kept    = "KEPT"    // a decision that must not be lost; ID and UID follow
	Version = "VERSION" // what `cri-evictd version` takes, to compare machines
	Fail    = "FAIL"    // what is wrong follows
)

// Say tells the host something.
func Say(word string, rest ...any) {
	fmt.Println(append([]any{word}, rest...)...)
}

// Facts are what the host knows before a boot.
type Facts struct {
	// Kept are the pods (UID) of decisions, by ID, that must be in the ledger.
	Kept map[uint64]string
	// Began are the pods that were there, newest last.
	Began []string
	// LookOnly: the machine ends after the look at what was left.
	LookOnly bool
}

// Note takes a line of the machine and returns its word and the rest.
func (f *Facts) Note(line string) (word, rest string, err error) {
	word, rest, _ = strings.Cut(strings.TrimSpace(line), " ")
	switch word {
	case Began:
		f.Began = append(f.Began, rest)
	case Kept:
		text, uid, _ := strings.Cut(rest, " ")
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || uid == "" {
			return word, rest, fmt.Errorf("%q: an ID and a UID", line)
		}
		if f.Kept == nil {
			f.Kept = map[uint64]string{}
		}
		f.Kept[id] = uid
	}
	return word, rest, nil
}

// In looks whether a ledger is whole, has what must not be lost, and evicted nobody
// twice.
func (f Facts) In(path string) error {
	decided, err := Decisions(path)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(f.Kept)) {
		if decided[id] != f.Kept[id] {
			return fmt.Errorf("decision %d about pod %s is %q in the ledger", id, f.Kept[id], decided[id])
		}
	}
	by := map[string]uint64{}
	for id, uid := range decided {
		if uid == "" {
			continue
		}
		if other, twice := by[uid]; twice {
			return fmt.Errorf("pod %s was evicted twice, by decisions %d and %d", uid, other, id)
		}
		by[uid] = id
	}
	return nil
}

// Decisions are the victims in a ledger by decision, "" for a decision without. None
// are in a ledger that is not there, or still empty. The error says that the ledger
// is damaged.
func Decisions(path string) (map[uint64]string, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() == 0 {
		return map[uint64]string{}, nil
	}
	log := logrus.New()
	log.SetOutput(os.Stderr)
	l, err := holds.OpenLedger(path, log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }() // nothing was written
	if err := l.Recovered(); err != nil {
		return nil, err
	}
	out := map[uint64]string{}
	records, _, err := l.Load()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		out[r.ID] = r.UID
	}
	raw, err := l.Decisions(1 << 20)
	if err != nil {
		return nil, err
	}
	for _, b := range raw {
		id, uid, err := decision(b)
		if err != nil {
			return nil, err
		}
		if have := out[id]; have != "" && have != uid {
			return nil, fmt.Errorf("decision %d is about pod %s and its hold about %s", id, uid, have)
		}
		out[id] = uid
	}
	return out, nil
}

// decision reads the ID and the victim of what the ledger keeps of a decision.
func decision(b []byte) (id uint64, uid string, err error) {
	var d struct {
		ID     uint64
		Victim *struct{ UID string }
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return 0, "", fmt.Errorf("a decision in the ledger: %w", err)
	}
	if d.Victim != nil {
		uid = d.Victim.UID
	}
	return d.ID, uid, nil
}
