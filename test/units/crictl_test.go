package units

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// crictlCommand is what the test has in place of the document's COMMAND: the image
// holds one program.
const crictlCommand = "/workload write --total 4Ki --hold=false"

// crictl runs each crictl command of a block as the document has it, and past the
// proxy, and compares what they print.
func (n *node) crictl(block string) {
	t := n.t
	t.Helper()
	sandbox, container := n.idsOf(steady)
	names := strings.NewReplacer("POD-ID", sandbox, "CONTAINER-ID", container, "COMMAND", crictlCommand)
	compare := map[string]func(direct, through string) error{
		"info": sameJSON, "inspectp": sameJSON, "logs": begins, "exec": same,
		"pods": sameColumns(0, 2, 3, 4), "stats": sameColumns(0, 1),
	}
	var through string
	for line := range strings.Lines(block) {
		if strings.HasPrefix(line, "export ") {
			through = line
			continue
		}
		command := names.Replace(line)
		program, rest, _ := strings.Cut(strings.TrimSpace(command), " ")
		verb, _, _ := strings.Cut(rest, " ")
		ok := compare[verb]
		if program != "crictl" || ok == nil || through == "" {
			t.Fatalf("no comparison for %q", line)
		}
		delete(compare, verb)
		direct := strings.ReplaceAll(through, socket, runtimeSocket)
		want, all, err := n.shell(direct + command)
		if err != nil {
			t.Fatalf("directly: %s: %v\n%s", command, err, all)
		}
		got, all, err := n.shell(through + command)
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, all)
		}
		if err := ok(want, got); err != nil {
			t.Errorf("%s: %v\ndirectly:\n%s\nthrough the proxy:\n%s", command, err, want, got)
		}
		t.Logf("%s%s", command, firstLines(got, 12))
	}
	for verb := range compare {
		t.Errorf("the document does not show crictl %s any more", verb)
	}
	// Nobody else has used the socket yet.
	calls := n.proxied()
	for _, method := range []string{"Status", "ListPodSandbox", "PodSandboxStatus", "ContainerStatus", "Exec"} {
		if calls[method] == 0 {
			t.Errorf("no %s came through the proxy: %v", method, calls)
		}
	}
}

func firstLines(s string, n int) string {
	lines := strings.SplitAfter(s, "\n")
	if len(lines) > n {
		lines = append(lines[:n:n], "...\n")
	}
	return strings.Join(lines, "")
}

func same(direct, through string) error {
	if direct != through || direct == "" {
		return fmt.Errorf("not the same, or nothing")
	}
	return nil
}

// begins is for what grows meanwhile: what was asked for later has the earlier in it.
func begins(direct, through string) error {
	if !strings.HasPrefix(through, direct) || direct == "" {
		return fmt.Errorf("does not begin the same, or nothing")
	}
	return nil
}

func sameJSON(direct, through string) error {
	var a, b map[string]any
	if err := json.Unmarshal([]byte(direct), &a); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(through), &b); err != nil {
		return err
	}
	if len(a) == 0 || !reflect.DeepEqual(a, b) {
		return fmt.Errorf("not the same, or nothing")
	}
	return nil
}

// columnGap is what crictl's tables have between columns.
var columnGap = regexp.MustCompile(` {2,}`)

// sameColumns compares these columns of a table; what is in others changes from
// one second to the next.
func sameColumns(columns ...int) func(direct, through string) error {
	cut := func(table string) (out []string) {
		for line := range strings.Lines(strings.TrimSpace(table)) {
			cells := columnGap.Split(strings.TrimSpace(line), -1)
			for _, c := range columns {
				if c < len(cells) {
					out = append(out, cells[c])
				}
			}
		}
		return out
	}
	return func(direct, through string) error {
		a, b := cut(direct), cut(through)
		if len(a) < 3*len(columns) || !reflect.DeepEqual(a, b) { // a head and two pods
			return fmt.Errorf("%q and %q", a, b)
		}
		return nil
	}
}

// The comparisons see a difference, and that there is nothing to compare.
func TestComparisons(t *testing.T) {
	const table = "CONTAINER   NAME   CPU %\nc1          main   0.10\nc2          main   0.20\n"
	for _, tt := range []struct {
		name            string
		compare         func(direct, through string) error
		direct, through string
		same            bool
	}{
		{"same", same, "a", "a", true}, {"same", same, "a", "b", false}, {"same", same, "", "", false},
		{"begins", begins, "a\n", "a\nb\n", true}, {"begins", begins, "a\n", "b\n", false}, {"begins", begins, "", "b", false},
		{"json", sameJSON, `{"a":1,"b":{}}`, `{"b":{},"a":1}`, true}, {"json", sameJSON, `{"a":1}`, `{"a":2}`, false},
		{"json", sameJSON, `{}`, `{}`, false}, {"json", sameJSON, `{"a":1}`, `no`, false},
		{"columns", sameColumns(0, 1), table, strings.Replace(table, "0.20", "0.30", 1), true},
		{"columns", sameColumns(0, 1), table, strings.Replace(table, "c2", "c3", 1), false},
		{"columns", sameColumns(0, 1), "CONTAINER   NAME\n", "CONTAINER   NAME\n", false},
	} {
		if err := tt.compare(tt.direct, tt.through); (err == nil) != tt.same {
			t.Errorf("%s of %q and %q: %v", tt.name, tt.direct, tt.through, err)
		}
	}
}
