package main

import (
	"strings"
	"testing"
)

const output = `=== RUN   TestA
=== RUN   TestA/one
    a_test.go:1: hello
=== RUN   TestA/two
--- PASS: TestA (0.10s)
    --- PASS: TestA/one (0.05s)
    --- SKIP: TestA/two (0.05s)
=== RUN   TestB
    b_test.go:2: wrong
--- FAIL: TestB (0.00s)
=== RUN   TestRealV1
    c_test.go:3: needs v1
--- SKIP: TestRealV1 (0.00s)
`

func TestReadResults(t *testing.T) {
	r := readResults(output + "FAIL\n")
	if r.passed != 1 || !equal(r.skipped, "TestA/two", "TestRealV1") || !equal(r.failed, "TestB") {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(r.failures, "b_test.go:2: wrong") || strings.Contains(r.failures, "hello") {
		t.Errorf("failures: %s", r.failures)
	}
	if got := r.problems(pureV2); len(got) != 2 {
		t.Errorf("problems: %q, want the skipped subtest and the failure", got)
	}
	if got := r.problems(nil); len(got) != 3 {
		t.Errorf("problems without a list: %q", got)
	}
}

// A binary that dies names no test as failed: what it said last is shown.
func TestReadResultsOfADeadBinary(t *testing.T) {
	r := readResults("=== RUN   TestA\n--- PASS: TestA (0.1s)\n=== RUN   TestB\npanic: no\n")
	if r.passed != 1 || !strings.Contains(r.failures, "panic: no") || strings.Contains(r.failures, "TestA") {
		t.Errorf("%+v", r)
	}
}

func TestNothingRunIsAFailure(t *testing.T) {
	r := readResults("testing: warning: no tests to run\nPASS\n")
	if got := r.problems(nil); len(got) != 1 || r.failures != "" {
		t.Errorf("problems %q, failures %q", got, r.failures)
	}
}

// The list is for whole names: a longer one is not meant.
func TestSkipListNeedsTheWholeName(t *testing.T) {
	l := skipList{{"TestA", "because"}}
	if l.reason("TestA") == "" || l.reason("TestAB") != "" || l.reason("XTestA") != "" {
		t.Error("matches a part of a name")
	}
}

func FuzzReadResults(f *testing.F) {
	f.Add(output)
	f.Fuzz(func(_ *testing.T, s string) { readResults(s).problems(pureV2) })
}
