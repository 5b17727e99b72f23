package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// longest bounds durations that have no bound of their own: a hundred years.
const longest = 100 * 365 * 24 * time.Hour

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

// word returns the value as a string; ok is false after noting that it is none.
func (r *reader) word() (s string, ok bool) {
	if string(r.raw) == "null" || json.Unmarshal(r.raw, &s) != nil {
		r.fail("must be a string")
		return "", false
	}
	return s, true
}

// oneOf returns the value if it is one of the words, otherwise "" after noting
// that.
func (r *reader) oneOf(words ...string) string {
	if s, ok := r.word(); ok {
		if slices.Contains(words, s) {
			return s
		}
		r.fail("must be one of " + strings.Join(words, ", "))
	}
	return ""
}

func (r *reader) words() (s []string, ok bool) {
	if err := json.Unmarshal(r.raw, &s); err != nil {
		r.fail("must be a list of strings")
		return nil, false
	}
	return s, true
}

func (r *reader) boolean(to *bool) {
	if err := json.Unmarshal(r.raw, to); err != nil {
		r.fail("must be true or false")
	}
}

// protectStatic reads true, false or the names of the static pods to protect.
func (r *reader) protectStatic(c *Config) {
	var names []string
	if json.Unmarshal(r.raw, &c.ProtectStatic) == nil {
		return
	}
	if json.Unmarshal(r.raw, &names) != nil {
		r.fail("must be true, false or a list of names of static pods")
		return
	}
	for _, n := range names {
		if !dnsSubdomain.MatchString(n) {
			r.fail(fmt.Sprintf("%q is not the name of a pod", n))
			return
		}
	}
	c.ProtectStatic, c.StaticNames = false, names
}

func (r *reader) integer(to *int64, low, high int64) bool {
	var n int64
	if err := json.Unmarshal(r.raw, &n); err != nil || n < low || n > high {
		r.fail(fmt.Sprintf("must be a whole number from %d to %d", low, high))
		return false
	}
	*to = n
	return true
}

func (r *reader) endpoint(to *cri.Endpoint) {
	s, ok := r.word()
	if !ok {
		return
	}
	e, err := cri.ParseEndpoint(r.field, s)
	var wrong *cri.EndpointError
	switch {
	case errors.As(err, &wrong):
		r.fail(wrong.Reason)
	case err != nil:
		r.fail(err.Error())
	default:
		*to = e
	}
}

// hostPort reads an address to listen on; "" and 0, as kubelet writes it, are
// none.
func (r *reader) hostPort(to *string) {
	s, ok := scalar(r.raw)
	if ok && (s == "" || s == "0") {
		*to = ""
		return
	}
	_, port, err := net.SplitHostPort(s)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 {
		r.fail(`must be host:port such as 127.0.0.1:10271, or "" for none`)
		return
	}
	*to = s
}

func (r *reader) path(to *string) {
	s, ok := r.word()
	if !ok {
		return
	}
	if !filepath.IsAbs(s) || strings.ContainsRune(s, 0) {
		r.fail("must be an absolute path")
		return
	}
	*to = filepath.Clean(s)
}

// nodeName reads the name of a Node object, which is a DNS subdomain (RFC 1123).
func (r *reader) nodeName(to *string) {
	s, ok := r.word()
	if !ok {
		return
	}
	if why := validation.IsDNS1123Subdomain(s); len(why) > 0 {
		r.fail("must be a DNS name of lower-case letters, digits, '-' and '.', of at most 253 bytes")
		return
	}
	*to = s
}

func (r *reader) duration(to *time.Duration, low, high time.Duration) {
	s, ok := r.word()
	if !ok {
		return
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < low || d > high {
		r.fail(fmt.Sprintf("must be a duration such as 90s or 5m from %s to %s", low, high))
		return
	}
	*to = d
}

func (r *reader) durations(to map[eviction.Signal]time.Duration) {
	m := r.bySignal()
	for _, key := range slices.Sorted(maps.Keys(m)) {
		inner := &reader{field: fmt.Sprintf("%s[%q]", r.field, key), raw: m[key], errs: r.errs}
		d := time.Duration(-1)
		if inner.duration(&d, 0, longest); d >= 0 {
			to[eviction.Signal(key)] = d
		}
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
			r.failAt(fmt.Sprintf("%s[%q]", r.field, key), m[key], "unknown signal"+suggest(key, signalNames())+"; one of "+strings.Join(signalNames(), ", "))
			delete(m, key)
		}
	}
	return m
}

func signalNames() []string {
	var names []string
	for _, s := range eviction.Signals() {
		names = append(names, string(s))
	}
	return names
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
	if string(raw) == "null" {
		return "", false
	}
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

// dnsSubdomain is RFC 1123's, as names of pods are.
var dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// dnsLabel is RFC 1123's, as namespaces are.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (r *reader) namespaces(to *[]string) {
	names, ok := r.words()
	if !ok {
		return
	}
	for _, n := range names {
		if !dnsLabel.MatchString(n) {
			r.fail(fmt.Sprintf("%q is not a namespace name", n))
			return
		}
	}
	*to = append([]string{}, names...)
}

func (r *reader) labels(to *map[string]string) {
	var m map[string]*string
	if err := json.Unmarshal(r.raw, &m); err != nil {
		r.fail("must be a mapping of label keys to strings; true, false and numbers need quotes")
		return
	}
	out := make(map[string]string, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		switch {
		case k == "":
			r.fail("a label key must not be empty")
			return
		case m[k] == nil:
			r.failAt(fmt.Sprintf("%s[%q]", r.field, k), json.RawMessage("null"), `a label needs a value; "" is one`)
			return
		}
		out[k] = *m[k]
	}
	*to = out
}
