package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// maxFile bounds the configuration file; a real one is a few hundred bytes.
const maxFile = 1 << 20

// Load reads and validates the file at path; see Parse for a file that is wrong.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Default().complete(), fmt.Errorf("configuration: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return Default().complete(), fmt.Errorf("configuration: %w", err)
	}
	if len(b) > maxFile {
		return Default().complete(), fmt.Errorf("configuration %s: larger than 1 MiB: not a configuration file", path)
	}
	c, err := parse(b, realPath)
	if err != nil {
		return c, fmt.Errorf("configuration %s:\n%w", path, err)
	}
	return c, nil
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Mode:   Enforce,
		Listen: mustDefault(DefaultListen), RuntimeEndpoint: mustDefault(DefaultRuntimeEndpoint),
		AdminSocket: mustDefault(DefaultAdminSocket),
		StateDir:    DefaultStateDir, RunDir: DefaultRunDir, KubeletRootDir: "/var/lib/kubelet", PodLogsDir: DefaultPodLogsDir,
		EvictionHard:           defaultHard(),
		EvictionMinimumReclaim: map[eviction.Signal]eviction.Threshold{},
		EvictionSoft:           map[eviction.Signal]eviction.Threshold{},
		EvictionSoftGrace:      map[eviction.Signal]time.Duration{},
		KillBudget:             DefaultKillBudget,
		ReportMode:             ReportStatus,
		MetricsBindAddress:     DefaultMetricsAddress,
		PressureTransition:     defaultTransition,
		ProtectStatic:          true,
		ProtectedNamespaces:    []string{"kube-system"},
		TrustedNamespaces:      []string{"kube-system"},
		HoldMaximum:            time.Hour,
		HandOverTimeout:        2 * time.Minute,
		DecorateStatus:         true,
		ImageGC:                defaultImageGC(),
	}
}

// mustDefault is for the constants of this package, which a test parses.
func mustDefault(s string) cri.Endpoint {
	e, _ := cri.ParseEndpoint("default", s)
	return e
}

// Parse reads and validates a configuration. If anything is wrong the error is
// Errors with everything that is, and the Config has the defaults in place of
// what could not be used: good for nothing but to go on forwarding calls.
func Parse(b []byte) (Config, error) {
	return parse(b, func(path string) string { return path })
}

// parse is Parse; real returns the path a socket's path leads to.
func parse(b []byte, real func(string) string) (Config, error) {
	c := Default()
	raw, errs := document(b)
	if raw == nil && len(errs) > 0 {
		return c.complete(), errs
	}
	known := map[string]Field{}
	for _, f := range Fields() {
		known[f.Key] = f
	}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		if key == "apiVersion" || key == "kind" {
			continue
		}
		f, ok := known[key]
		if !ok {
			errs = append(errs, FieldError{Field: key, Value: show(raw[key]), Want: "unknown key" + suggest(key, slices.Collect(maps.Keys(known)))})
			continue
		}
		if string(raw[key]) == "null" {
			continue // as if it were not written
		}
		f.set(&reader{field: key, raw: raw[key], errs: &errs}, &c)
	}
	c = c.complete()
	if c.ProxySocket.Path == "" {
		errs = append(errs, FieldError{Field: "proxySocket", Want: "runDir is too long for a socket in it; set proxySocket"})
	}
	errs = append(errs, c.conflicts(real)...)
	errs = append(errs, c.softRules(raw)...)
	errs = append(errs, c.imageGCRules()...)
	c.synthesised(raw)
	if len(errs) > 0 {
		c.untangle(real)
		return c, errs
	}
	return c, nil
}

// complete fills in what follows from other keys.
func (c Config) complete() Config {
	if c.ProxySocket.Path == "" {
		if e, err := cri.ParseEndpoint("proxySocket", filepath.Join(c.RunDir, "proxy.sock")); err == nil {
			c.ProxySocket = e
		}
	}
	if c.PodsAPISocket.Path == "" {
		// A root directory too long for a socket has none: other sources are used.
		if e, err := cri.ParseEndpoint("podsAPISocket", filepath.Join(c.KubeletRootDir, "pods-api", "pods-api.sock")); err == nil {
			c.PodsAPISocket = e
		}
	}
	return c
}

// document turns YAML into keys with their raw values.
func document(b []byte) (map[string]json.RawMessage, Errors) {
	j, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return nil, Errors{{Field: "document", Want: "is not valid YAML: " + oneLine(strings.TrimPrefix(err.Error(), "yaml: "))}}
	}
	if several(b) {
		return nil, Errors{{Field: "document", Want: "must be a single YAML document"}}
	}
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(j, &raw); err != nil {
		return nil, Errors{{Field: "document", Value: show(j), Want: "must be a mapping of keys to values"}}
	}
	var errs Errors
	for key, want := range map[string]string{"apiVersion": APIVersion, "kind": Kind} {
		var got string
		v, ok := raw[key]
		if ok && json.Unmarshal(v, &got) == nil && got == want {
			continue
		}
		errs = append(errs, FieldError{Field: key, Value: show(v), Want: "must be " + want})
	}
	slices.SortFunc(errs, func(a, b FieldError) int { return strings.Compare(a.Field, b.Field) })
	if raw == nil {
		raw = map[string]json.RawMessage{}
	}
	return raw, errs
}

// several says whether something follows the first document: the YAML library
// would ignore it.
func several(b []byte) bool {
	dec := goyaml.NewDecoder(bytes.NewReader(b))
	var first, next any
	if dec.Decode(&first) != nil {
		return false
	}
	err := dec.Decode(&next)
	return !errors.Is(err, io.EOF) && (err != nil || next != nil)
}

// oneLine makes one line of a message of the YAML library.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// NeedRestart lists the keys of next that differ and that only a restart can
// change.
func (c Config) NeedRestart(next Config) Errors {
	var errs Errors
	for _, f := range Fields() {
		if f.fixed == nil {
			continue
		}
		if was, is := f.fixed(&c), f.fixed(&next); was != is {
			errs = append(errs, FieldError{Field: f.Key, Value: is, Want: fmt.Sprintf("a change needs a restart; in force is %q", was)})
		}
	}
	return errs
}

// conflicts checks values against each other.
func (c *Config) conflicts(real func(string) string) Errors {
	var errs Errors
	sockets := map[string]string{}
	for _, s := range []struct {
		field string
		e     cri.Endpoint
	}{{"runtimeEndpoint", c.RuntimeEndpoint}, {"listen", c.Listen}, {"adminSocket", c.AdminSocket}, {"proxySocket", c.ProxySocket}, {"podsAPISocket", c.PodsAPISocket}} {
		if s.e.Path == "" {
			continue
		}
		where := real(s.e.Path)
		if other, taken := sockets[where]; taken {
			errs = append(errs, FieldError{Field: s.field, Value: s.e.String(), Want: "must differ from " + other})
			continue
		}
		sockets[where] = s.field
	}
	return errs
}

// untangle makes a broken configuration fit for forwarding: the proxy listens
// and dials at different places, and no other socket of ours is in its way.
func (c *Config) untangle(real func(string) string) {
	same := func(a, b cri.Endpoint) bool { return real(a.Path) == real(b.Path) }
	if same(c.Listen, c.RuntimeEndpoint) {
		c.Listen = mustDefault(DefaultListen)
	}
	if same(c.Listen, c.RuntimeEndpoint) {
		c.RuntimeEndpoint = mustDefault(DefaultRuntimeEndpoint)
	}
	for _, e := range []*cri.Endpoint{&c.AdminSocket, &c.ProxySocket} {
		if same(*e, c.Listen) || same(*e, c.RuntimeEndpoint) {
			*e = cri.Endpoint{}
		}
	}
}

// realPath follows symbolic links of the directory, as /var/run is one to /run:
// listening at the runtime's own address under another name would end in a
// proxy that forwards to itself.
func realPath(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return path
	}
	return filepath.Join(dir, filepath.Base(path))
}

// show prints a raw value for a message, cut to a readable length.
func show(raw []byte) string {
	const most = 64
	s := string(bytes.TrimSpace(raw))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
