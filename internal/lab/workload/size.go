package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// size is a flag of bytes: "1048576", "1024Ki", "1Mi", "1Gi".
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

func (s *size) Set(v string) error {
	n, err := parseSize(v)
	if err != nil {
		return err
	}
	*s = size(n)
	return nil
}

// parseSize reads a non-negative number of bytes.
func parseSize(v string) (int64, error) {
	number, shift := v, 0
	for suffix, bits := range map[string]int{"Ki": 10, "Mi": 20, "Gi": 30} {
		if n, ok := strings.CutSuffix(v, suffix); ok {
			number, shift = n, bits
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is no size: use bytes, or Ki, Mi, Gi", v)
	}
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is too large", v)
	}
	return int64(n) << shift, nil
}
