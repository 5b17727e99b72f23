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
	c, err := Parse(b)
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
		StateDir:    DefaultStateDir, RunDir: DefaultRunDir, KubeletRootDir: "/var/lib/kubelet",
		EvictionHard:           defaultHard(),
		EvictionMinimumReclaim: map[eviction.Signal]eviction.Threshold{},
		PressureTransition:     defaultTransition,
		ProtectStatic:          true,
		ProtectedNamespaces:    []string{"kube-system"},
		TrustedNamespaces:      []string{"kube-system"},
		HoldMaximum:            time.Hour,
		DecorateStatus:         true,
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
			errs = append(errs, FieldError{Field: key, Value: show(raw[key]), Want: "unknown key" + suggest(key, known)})
			continue
		}
		if string(raw[key]) == "null" {
			continue // as if it were not written
		}
		f.set(&reader{field: key, raw: raw[key], errs: &errs}, &c)
		if f.Without != "" {
			c.WithoutEffect = append(c.WithoutEffect, key)
		}
	}
	c = c.complete()
	if c.ProxySocket.Path == "" {
		errs = append(errs, FieldError{Field: "proxySocket", Want: "runDir is too long for a socket in it; set proxySocket"})
	}
	errs = append(errs, c.conflicts()...)
	if len(errs) > 0 {
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
	return c
}

// document turns YAML into keys with their raw values.
func document(b []byte) (map[string]json.RawMessage, Errors) {
	if docs := bytes.Count(append([]byte("\n"), b...), []byte("\n---\n")); docs > 1 {
		return nil, Errors{{Field: "document", Want: "must be a single YAML document"}}
	}
	j, err := yaml.YAMLToJSONStrict(b)
	if err != nil {
		return nil, Errors{{Field: "document", Want: "is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}}
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

// conflicts checks values against each other.
func (c *Config) conflicts() Errors {
	var errs Errors
	sockets := map[string]string{}
	for _, s := range []struct {
		field string
		e     cri.Endpoint
	}{{"runtimeEndpoint", c.RuntimeEndpoint}, {"listen", c.Listen}, {"adminSocket", c.AdminSocket}, {"proxySocket", c.ProxySocket}} {
		if s.e.Path == "" {
			continue
		}
		if other, taken := sockets[s.e.Path]; taken {
			errs = append(errs, FieldError{Field: s.field, Value: s.e.String(), Want: "must differ from " + other})
			continue
		}
		sockets[s.e.Path] = s.field
	}
	return errs
}

// suggest names the known key that differs in case only, or that contains the
// written one.
func suggest(key string, known map[string]Field) string {
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if strings.EqualFold(k, key) {
			return fmt.Sprintf("; did you mean %s?", k)
		}
	}
	return ""
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
