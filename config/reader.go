package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// reader reads one key's value and collects what is wrong with it.
type reader struct {
	field string
	raw   json.RawMessage
	errs  *Errors
}

func (r *reader) fail(want string) { r.failAt(r.field, r.raw, want) }

func (r *reader) failAt(field string, raw json.RawMessage, want string) {
	*r.errs = append(*r.errs, FieldError{Field: field, Value: show(raw), Want: want})
}

// word returns the value as a string, or def after noting that it is none.
func (r *reader) word(def string) string {
	var s string
	if err := json.Unmarshal(r.raw, &s); err != nil {
		r.fail("must be a string")
		return def
	}
	return s
}

func (r *reader) words() []string {
	var s []string
	if err := json.Unmarshal(r.raw, &s); err != nil {
		r.fail("must be a list of strings")
	}
	return s
}

func (r *reader) boolean(to *bool) {
	if err := json.Unmarshal(r.raw, to); err != nil {
		r.fail("must be true or false")
	}
}

func (r *reader) integer(low, high int64) {
	var n int64
	if err := json.Unmarshal(r.raw, &n); err != nil || n < low || n > high {
		r.fail(fmt.Sprintf("must be a whole number from %d to %d", low, high))
	}
}

func (r *reader) endpoint(to *cri.Endpoint) {
	e, err := cri.ParseEndpoint(r.field, r.word(""))
	if err != nil {
		r.fail(strings.TrimPrefix(err.Error(), r.field+": "))
		return
	}
	*to = e
}

func (r *reader) path(to *string) {
	s := r.word("/")
	if !filepath.IsAbs(s) {
		r.fail("must be an absolute path")
		return
	}
	*to = filepath.Clean(s)
}

func (r *reader) duration(to *time.Duration, low, high time.Duration) {
	d, err := time.ParseDuration(r.word("0s"))
	if err != nil || d < low || d > high {
		r.fail(fmt.Sprintf("must be a duration such as 90s or 5m from %s to %s", low, high))
		return
	}
	*to = d
}

func (r *reader) durations() {
	m := r.bySignal()
	for _, key := range slices.Sorted(maps.Keys(m)) {
		inner := &reader{field: fmt.Sprintf("%s[%q]", r.field, key), raw: m[key], errs: r.errs}
		var d time.Duration
		inner.duration(&d, 0, 1<<62)
	}
}

// bySignal returns the entries of a mapping by signal, without those whose key
// is none.
func (r *reader) bySignal() map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(r.raw, &m); err != nil {
		r.fail("must be a mapping of signals to values")
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(eviction.Signals(), eviction.Signal(key)) {
			r.failAt(fmt.Sprintf("%s[%q]", r.field, key), m[key], "unknown signal; one of "+signalNames())
			delete(m, key)
		}
	}
	return m
}

func signalNames() string {
	var names []string
	for _, s := range eviction.Signals() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// thresholds reads a mapping of signals to thresholds into to.
func (r *reader) thresholds(to map[eviction.Signal]eviction.Threshold, parse func(string) (eviction.Threshold, error)) {
	m := r.bySignal()
	for _, key := range slices.Sorted(maps.Keys(m)) {
		field := fmt.Sprintf("%s[%q]", r.field, key)
		text, ok := scalar(m[key])
		if !ok {
			r.failAt(field, m[key], "must be a quantity such as 500Mi or a percentage such as 10%")
			continue
		}
		t, err := parse(text)
		if err != nil {
			r.failAt(field, m[key], err.Error())
			continue
		}
		if t.Auto && eviction.Signal(key) != eviction.MemoryAvailable {
			r.failAt(field, m[key], "auto is for memory.available only")
			continue
		}
		to[eviction.Signal(key)] = t
	}
}

// scalar accepts a string or a plain number, which YAML makes of 104857600.
func scalar(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	var n json.Number
	if json.Unmarshal(raw, &n) == nil {
		return n.String(), true
	}
	return "", false
}

// dnsLabel is RFC 1123's, as namespaces are.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (r *reader) namespaces(to *[]string) {
	names := r.words()
	for _, n := range names {
		if !dnsLabel.MatchString(n) {
			r.fail(fmt.Sprintf("%q is not a namespace name", n))
			return
		}
	}
	*to = append([]string{}, names...)
}

func (r *reader) labels(to *map[string]string) {
	var m map[string]string
	if err := json.Unmarshal(r.raw, &m); err != nil {
		r.fail("must be a mapping of label keys to values")
		return
	}
	for k := range m {
		if k == "" {
			r.fail("a label key must not be empty")
			return
		}
	}
	*to = m
}
