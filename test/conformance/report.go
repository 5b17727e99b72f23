package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// result is how one spec ended.
type result struct {
	Name   string
	State  string // "passed", "skipped", "failed" and ginkgo's other words
	Reason string // of a skip or failure, one line
}

const (
	passed  = "passed"
	skipped = "skipped"
	absent  = "absent" // not in the report at all
)

// readReport reads ginkgo's JSON report. Specs that were not chosen to run, such
// as benchmarks, are left out.
func readReport(r io.Reader) ([]result, error) {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeType            string
			LeafNodeText            string
			State                   string
			Failure                 struct{ Message string }
		}
	}
	if err := json.NewDecoder(r).Decode(&suites); err != nil {
		return nil, fmt.Errorf("critest's report: %w", err)
	}
	var out []result
	seen := map[string]int{}
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			reason := strings.Join(strings.Fields(s.Failure.Message), " ")
			if s.LeafNodeType != "It" {
				if s.State != passed && s.State != skipped {
					return nil, fmt.Errorf("critest's %s %s: %s", s.LeafNodeType, s.State, reason)
				}
				continue
			}
			if s.State == skipped && reason == "" {
				continue // by ginkgo.focus or ginkgo.skip
			}
			name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
			if seen[name]++; seen[name] > 1 {
				name = fmt.Sprintf("%s #%d", name, seen[name])
			}
			out = append(out, result{Name: name, State: s.State, Reason: reason})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("critest's report has no spec")
	}
	return out, nil
}

// count returns how many results are in each state.
func count(results []result) map[string]int {
	n := map[string]int{}
	for _, r := range results {
		n[r.State]++
	}
	return n
}
