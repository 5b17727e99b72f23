package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// softRules checks the two maps of soft thresholds against each other as
// kubelet's ParseThresholdConfig does (Kubernetes 1.37,
// pkg/kubelet/eviction/helpers.go): a soft threshold without a grace period is
// an error. A grace period without a threshold, which kubelet takes silently, is
// a warning.
func (c *Config) softRules(raw map[string]json.RawMessage) Errors {
	var errs Errors
	const grace, soft = "evictionSoftGracePeriod", "evictionSoft"
	for _, s := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		t := c.EvictionSoft[s]
		d, has := c.EvictionSoftGrace[s]
		switch {
		case t.Off:
		case has && d == 0:
			c.warn(grace, s, "0s", "the soft threshold acts as soon as it is met; kubelet takes it for a hard one")
		case has:
		case written(raw[grace], s): // and wrong, which is an error already
			delete(c.EvictionSoft, s)
		default:
			errs = append(errs, FieldError{Field: fmt.Sprintf("%s[%q]", grace, s), Want: fmt.Sprintf("is missing; every signal of %s needs one, such as 90s", soft)})
			delete(c.EvictionSoft, s)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(c.EvictionSoftGrace)) {
		if t, has := c.EvictionSoft[s]; (!has || t.Off) && !written(raw[soft], s) {
			c.warn(grace, s, c.EvictionSoftGrace[s].String(), fmt.Sprintf("has no effect: %s has no %s", soft, s))
		}
	}
	return errs
}

func (c *Config) warn(key string, s eviction.Signal, value, what string) {
	c.Warnings = append(c.Warnings, FieldError{Field: fmt.Sprintf("%s[%q]", key, s), Value: value, Want: what})
}

// written says whether a mapping has an entry for a signal, whatever it is.
func written(mapping json.RawMessage, s eviction.Signal) bool {
	var m map[string]json.RawMessage
	if json.Unmarshal(mapping, &m) != nil {
		return false
	}
	_, ok := m[string(s)]
	return ok
}

// synthesised warns of values for containerfs: its thresholds are copies of
// those of nodefs or imagefs, as in kubelet, which overwrites what is written
// (Kubernetes 1.37, pkg/kubelet/eviction/helpers.go UpdateContainerFsThresholds).
func (c *Config) synthesised(raw map[string]json.RawMessage) {
	for _, key := range []string{"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim"} {
		for _, s := range []eviction.Signal{eviction.ContainerFsAvailable, eviction.ContainerFsInodesFree} {
			if written(raw[key], s) {
				c.warn(key, s, "", "has no effect: containerfs has the thresholds of nodefs or, with a file system for images, of imagefs")
			}
		}
	}
}
