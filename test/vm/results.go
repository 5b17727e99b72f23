package main

import (
	"fmt"
	"regexp"
	"strings"
)

// results is what a test binary's -test.v output says.
type results struct {
	passed   int      // top-level tests
	skipped  []string // tests and subtests
	failed   []string // top-level tests
	failures string   // what the failed ones printed; all that was left when the binary died
}

// resultLine is the end of a test; subtests are indented.
var resultLine = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+) \(`)

// startLine is the start of a top-level test.
var startLine = regexp.MustCompile(`^=== RUN   [^/\s]+$`)

func readResults(output string) results {
	var r results
	var current, failures strings.Builder
	for line := range strings.Lines(output) {
		if startLine.MatchString(strings.TrimRight(line, "\r\n")) {
			// The lines of subtests follow the result of the test before.
			current.Reset()
		}
		current.WriteString(line)
		m := resultLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		top := m[1] == ""
		switch m[2] {
		case "SKIP":
			r.skipped = append(r.skipped, m[3])
		case "PASS":
			if top {
				r.passed++
			}
		case "FAIL":
			if top {
				r.failed = append(r.failed, m[3])
				failures.WriteString(current.String())
			}
		}
		if top {
			current.Reset()
		}
	}
	if !strings.Contains(output, "\nPASS\n") && !strings.HasPrefix(output, "PASS\n") && len(r.failed) == 0 {
		failures.WriteString(current.String()) // it died: a panic, a timeout
	}
	r.failures = failures.String()
	return r
}

// skipList are the tests that may be skipped in the machine, with the reason.
// Whatever else is skipped there is never run at all: it fails the step.
type skipList []allowedSkip

type allowedSkip struct{ test, reason string } // test: a regular expression for the whole name

// pureV2 is for tests of what the machine does not have on purpose.
var pureV2 = skipList{
	{`TestRealV1.*`, "needs cgroup v1; the machine is pure v2"},
	{`TestRealV2WithoutMemoryController`, "needs a hybrid machine; this one has the memory controller on v2"},
}

func (a allowedSkip) matches(name string) bool {
	return regexp.MustCompile("^(?:" + a.test + ")$").MatchString(name)
}

// skippedBy counts the tests this entry is about.
func (r results) skippedBy(a allowedSkip) int {
	n := 0
	for _, name := range r.skipped {
		if a.matches(name) {
			n++
		}
	}
	return n
}

// reason is empty for a test that must not be skipped.
func (l skipList) reason(name string) string {
	for _, a := range l {
		if a.matches(name) {
			return a.reason
		}
	}
	return ""
}

// problems are what makes a step fail although its exit code is 0.
func (r results) problems(allowed skipList) []string {
	var out []string
	for _, name := range r.skipped {
		if allowed.reason(name) == "" {
			out = append(out, fmt.Sprintf("%s was skipped, and this is where it must run", name))
		}
	}
	for _, name := range r.failed {
		out = append(out, name+" failed")
	}
	if r.passed == 0 {
		out = append(out, "no test passed")
	}
	return out
}
