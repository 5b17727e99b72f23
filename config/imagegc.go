package config

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction/gc"
)

// defaultImageGC are kubelet's defaults.
func defaultImageGC() gc.Settings {
	return gc.Settings{High: 85, Low: 80, MinAge: 2 * time.Minute}
}

// imageGCFields are the keys of image garbage collection.
func imageGCFields() []Field {
	percent := func(to func(c *Config) *int) func(r *reader, c *Config) {
		return configured(func(r *reader, c *Config) {
			var n int64
			if r.integer(&n, 0, 100) {
				*to(c) = int(n)
			}
		})
	}
	age := func(to func(c *Config) *time.Duration) func(r *reader, c *Config) {
		return configured(func(r *reader, c *Config) { r.duration(to(c), 0, longest) })
	}
	return []Field{
		{Key: "imageGCHighThresholdPercent", Default: "85", Unit: "percent", Bounds: "0 to 100", Doc: "how full the images' file system is when unused images go in the background; inodes: the same, and at least 90; 100 turns that off",
			set: percent(func(c *Config) *int { return &c.ImageGC.High })},
		{Key: "imageGCLowThresholdPercent", Default: "80", Unit: "percent", Bounds: "0 to 100, below imageGCHighThresholdPercent", Doc: "how full it is when that ends; inodes: the same, and at least 85",
			set: percent(func(c *Config) *int { return &c.ImageGC.Low })},
		{Key: "imageMinimumGCAge", Default: "2m", Unit: "duration", Bounds: "0s or more", Doc: "an image stays that was pulled, used or first seen less than this ago",
			set: age(func(c *Config) *time.Duration { return &c.ImageGC.MinAge })},
		{Key: "imageMaximumGCAge", Default: "0s", Unit: "duration", Bounds: "0s (never), or more than imageMinimumGCAge", Doc: "an image that was not used for this long goes in the background, however much space there is",
			set: age(func(c *Config) *time.Duration { return &c.ImageGC.MaxAge })},
		{Key: "imageAllowList", Default: "none", Unit: "references, prefixes, digests", Bounds: "registry.example/app:1, registry.example/base/*, sha256:…", Doc: "images that are never removed; [\"*\"] keeps them all",
			set: configured(func(r *reader, c *Config) {
				texts, ok := r.words()
				if !ok {
					return
				}
				list, bad, err := gc.ParseAllowList(texts)
				if err != nil {
					b, _ := json.Marshal(texts[bad]) // a string always has a JSON form
					r.failAt(fmt.Sprintf("%s[%d]", r.field, bad), b, err.Error())
					return
				}
				c.ImageGC.Keep = list
			})},
	}
}

// configured notes that a key of image GC was written, if its value is good.
func configured(set func(r *reader, c *Config)) func(r *reader, c *Config) {
	return func(r *reader, c *Config) {
		before := len(*r.errs)
		set(r, c)
		c.ImageGC.Configured = c.ImageGC.Configured || len(*r.errs) == before
	}
}

// imageGCRules checks the keys of image GC against each other, as kubelet does
// (Kubernetes 1.37, pkg/kubelet/apis/config/validation).
func (c *Config) imageGCRules() Errors {
	var errs Errors
	g := &c.ImageGC
	if g.Low >= g.High {
		errs = append(errs, FieldError{
			Field: "imageGCLowThresholdPercent", Value: strconv.Itoa(g.Low), Want: fmt.Sprintf("must be below imageGCHighThresholdPercent, which is %d", g.High),
		})
	}
	if g.MaxAge > 0 && g.MaxAge <= g.MinAge {
		errs = append(errs, FieldError{
			Field: "imageMaximumGCAge", Value: g.MaxAge.String(), Want: fmt.Sprintf("must be 0s, or more than imageMinimumGCAge, which is %s", g.MinAge),
		})
	}
	return errs
}
