package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// KubeletSettings is what kubelet's own configuration says of eviction and image
// GC, with its defaults (Kubernetes 1.37,
// pkg/kubelet/apis/config/v1beta1/defaults.go and defaults_linux.go).
type KubeletSettings struct {
	// Hard and Soft have no entry for a signal that is not set or is off.
	Hard, Soft map[eviction.Signal]eviction.Threshold
	Grace      map[eviction.Signal]time.Duration
	MinReclaim map[eviction.Signal]eviction.Threshold
	Transition time.Duration
	// ImageGCHigh and ImageGCLow are percentages of the image file system in use.
	ImageGCHigh, ImageGCLow int
	ImageMaximumAge         time.Duration
	// LimitsStorage: localStorageCapacityIsolation, so that it evicts pods over
	// their ephemeral-storage limits whatever the thresholds.
	LimitsStorage bool
}

// kubeletDefaults are kubelet's hard thresholds where evictionHard is not set.
func kubeletDefaults() map[eviction.Signal]string {
	return map[eviction.Signal]string{
		eviction.MemoryAvailable: "100Mi", eviction.NodeFsAvailable: "10%", eviction.NodeFsInodesFree: "5%",
		eviction.ImageFsAvailable: "15%", eviction.ImageFsInodesFree: "5%",
	}
}

// settingsFile are the fields of KubeletConfiguration that are compared.
type settingsFile struct {
	Kind                             string            `json:"kind"`
	EvictionHard                     map[string]string `json:"evictionHard"`
	EvictionSoft                     map[string]string `json:"evictionSoft"`
	EvictionSoftGracePeriod          map[string]string `json:"evictionSoftGracePeriod"`
	EvictionMinimumReclaim           map[string]string `json:"evictionMinimumReclaim"`
	EvictionPressureTransitionPeriod string            `json:"evictionPressureTransitionPeriod"`
	MergeDefaultEvictionSettings     bool              `json:"mergeDefaultEvictionSettings"`
	ImageGCHighThresholdPercent      *int              `json:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent       *int              `json:"imageGCLowThresholdPercent"`
	ImageMaximumGCAge                string            `json:"imageMaximumGCAge"`
	LocalStorageCapacityIsolation    *bool             `json:"localStorageCapacityIsolation"`
}

// ReadKubeletSettings reads kubelet's configuration file and, with dir, what its
// drop-in directory (--config-dir) changes of it: files that end in .conf, in the
// order of their names, each a merge patch (Kubernetes 1.37,
// cmd/kubelet/app/server.go mergeKubeletConfigurations). Flags are not seen.
func ReadKubeletSettings(file, dir string) (KubeletSettings, error) {
	doc, err := mergedKubelet(file, dir)
	if err != nil {
		return KubeletSettings{}, err
	}
	var f settingsFile
	if err := json.Unmarshal(doc, &f); err != nil {
		return KubeletSettings{}, fmt.Errorf("kubelet's configuration %s: %w", file, err)
	}
	s, err := f.settings()
	if err != nil {
		return s, fmt.Errorf("kubelet's configuration %s: %w", file, err)
	}
	return s, nil
}

// ReadKubeletWith is ReadKubelet with a drop-in directory.
func ReadKubeletWith(file, dir string) (Kubelet, error) {
	doc, err := mergedKubelet(file, dir)
	if err != nil {
		return Kubelet{}, err
	}
	k, err := parseKubelet(doc)
	if err != nil {
		return k, fmt.Errorf("kubeletConfig %s: %w", file, err)
	}
	return k, nil
}

// mergedKubelet is the file with its drop-ins, as JSON.
func mergedKubelet(file, dir string) ([]byte, error) {
	paths := []string{file}
	if dir != "" {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("kubelet's drop-in directory: %w", err)
		}
		for _, e := range entries { // ReadDir sorts
			if !e.IsDir() && strings.HasSuffix(e.Name(), ".conf") {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	merged := map[string]any{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("kubelet's configuration: %w", err)
		}
		var doc map[string]any
		if err := yaml.Unmarshal(b, &doc); err != nil {
			return nil, fmt.Errorf("kubelet's configuration %s: %w", path, err)
		}
		if doc["kind"] != "KubeletConfiguration" {
			return nil, fmt.Errorf("kubelet's configuration %s: kind %q: must be KubeletConfiguration", path, fmt.Sprint(doc["kind"]))
		}
		patch(merged, doc)
	}
	return json.Marshal(merged)
}

// patch is a JSON merge patch (RFC 7396).
func patch(into, by map[string]any) {
	for k, v := range by {
		inner, isMap := v.(map[string]any)
		switch old, was := into[k].(map[string]any); {
		case v == nil:
			delete(into, k)
		case isMap && was:
			patch(old, inner)
		default:
			into[k] = v
		}
	}
}

func (f *settingsFile) settings() (KubeletSettings, error) {
	s := KubeletSettings{
		Hard: map[eviction.Signal]eviction.Threshold{}, Soft: map[eviction.Signal]eviction.Threshold{},
		Grace: map[eviction.Signal]time.Duration{}, MinReclaim: map[eviction.Signal]eviction.Threshold{},
		Transition: defaultTransition, ImageGCHigh: 85, ImageGCLow: 80, LimitsStorage: true,
	}
	var errs []error
	hard := map[string]string{}
	if f.EvictionHard == nil || f.MergeDefaultEvictionSettings {
		for sig, text := range kubeletDefaults() {
			hard[string(sig)] = text
		}
	}
	for sig, text := range f.EvictionHard {
		hard[sig] = text
	}
	errs = append(errs, kubeletSignals("evictionHard", hard, s.Hard, eviction.ParseThreshold)...)
	errs = append(errs, kubeletSignals("evictionSoft", f.EvictionSoft, s.Soft, eviction.ParseThreshold)...)
	errs = append(errs, kubeletSignals("evictionMinimumReclaim", f.EvictionMinimumReclaim, s.MinReclaim, reclaimOf)...)
	errs = append(errs, kubeletGraces(f.EvictionSoftGracePeriod, s.Soft, s.Grace)...)
	for _, d := range []struct {
		key, text string
		to        *time.Duration
	}{{"evictionPressureTransitionPeriod", f.EvictionPressureTransitionPeriod, &s.Transition}, {"imageMaximumGCAge", f.ImageMaximumGCAge, &s.ImageMaximumAge}} {
		if d.text == "" {
			continue
		}
		v, err := time.ParseDuration(d.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.key, err))
		} else if v != 0 || d.to == &s.ImageMaximumAge { // 0s is the default of the other
			*d.to = v
		}
	}
	if f.ImageGCHighThresholdPercent != nil {
		s.ImageGCHigh = *f.ImageGCHighThresholdPercent
	}
	if f.ImageGCLowThresholdPercent != nil {
		s.ImageGCLow = *f.ImageGCLowThresholdPercent
	}
	if f.LocalStorageCapacityIsolation != nil {
		s.LimitsStorage = *f.LocalStorageCapacityIsolation
	}
	return s, errors.Join(errs...)
}

// kubeletSignals reads thresholds by signal; those that are off are left out.
func kubeletSignals(field string, from map[string]string, to map[eviction.Signal]eviction.Threshold, parse func(string) (eviction.Threshold, error)) []error {
	var errs []error
	for name, text := range from {
		sig := eviction.Signal(name)
		t, err := parse(text)
		switch {
		case !slices.Contains(eviction.Signals(), sig):
			err = errors.New("no such signal: kubelet does not start")
		case err == nil && t.Auto:
			err = errors.New("kubelet knows no auto")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%q]: %q: %w", field, name, text, err))
			continue
		}
		if !t.Off {
			to[sig] = t
		}
	}
	return errs
}

// kubeletGraces reads the grace periods of the soft thresholds, with kubelet's
// reasons not to start (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go
// parseGracePeriods and ParseThresholdConfig).
func kubeletGraces(from map[string]string, soft map[eviction.Signal]eviction.Threshold, to map[eviction.Signal]time.Duration) []error {
	const field = "evictionSoftGracePeriod"
	var errs []error
	for name, text := range from {
		sig := eviction.Signal(name)
		d, err := time.ParseDuration(text)
		switch {
		case !slices.Contains(eviction.Signals(), sig):
			err = errors.New("no such signal: kubelet does not start")
		case err == nil && d < 0:
			err = errors.New("is negative: kubelet does not start")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%q]: %q: %w", field, name, text, err))
			continue
		}
		to[sig] = d
	}
	for sig := range soft {
		if _, written := from[string(sig)]; !written {
			errs = append(errs, fmt.Errorf("%s[%q]: is missing: kubelet does not start", field, sig))
		}
	}
	return errs
}
