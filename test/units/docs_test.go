package units

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const operations = "../../docs/operations.md"

// shellBlocks returns the fenced blocks that name no language, which are commands,
// of a chapter (a heading of the second level) of a Markdown text.
func shellBlocks(text, chapter string) []string {
	var blocks []string
	var block strings.Builder
	inside, fenced, indent, commands := false, false, 0, false
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		switch {
		case !fenced && strings.HasPrefix(line, "## "):
			inside = bare == "## "+chapter
		case !inside:
		case !fenced && strings.HasPrefix(bare, "```"):
			fenced, commands, indent = true, bare == "```", strings.Index(line, "`")
			block.Reset()
		case fenced && bare == "```":
			if fenced = false; commands {
				blocks = append(blocks, block.String())
			}
		case fenced:
			// A list indents its blocks.
			block.WriteString(line[min(indent, len(line)-len(strings.TrimLeft(line, " "))):])
		}
	}
	return blocks
}

func TestShellBlocks(t *testing.T) {
	const text = "# A\n```\nbefore\n```\n## On\n1. One\n\n   ```\n   first <<END\n     deeper\n   END\n   ```\n   ```yaml\n   no: command\n   ```\n" +
		"2. Two\n```\n## no chapter\nsecond\n```\n## Off\n```\nthird\n```\n"
	if got, want := shellBlocks(text, "On"), []string{"first <<END\n  deeper\nEND\n", "## no chapter\nsecond\n"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := shellBlocks(text, "Off"), []string{"third\n"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What the README says to do on a node is what docs/operations.md says, in the same
// order: TestOnAndOff runs that.
func TestReadmeSaysTheSame(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	must(t, err)
	document, err := os.ReadFile(operations)
	must(t, err)
	rest := strings.Split(strings.Join(slices.Concat(shellBlocks(string(document), "On"), shellBlocks(string(document), "Off")), ""), "\n")
	blocks := shellBlocks(string(readme), "On a node")
	if len(blocks) == 0 {
		t.Fatal("no commands")
	}
	for line := range strings.Lines(strings.Join(blocks, "")) {
		i := slices.Index(rest, strings.TrimSuffix(line, "\n"))
		if i < 0 {
			t.Fatalf("not in docs/operations.md, or earlier there: %s", line)
		}
		rest = rest[i+1:]
	}
}
