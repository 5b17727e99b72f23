package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/cri-evictd/cri-evictd/config"
)

func TestPageIsCurrent(t *testing.T) {
	var want bytes.Buffer
	if err := write(&want); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/configuration.md is not current: go run ./internal/configdoc > docs/configuration.md")
	}
}

func TestEveryKeyIsOnThePage(t *testing.T) {
	var page bytes.Buffer
	if err := write(&page); err != nil {
		t.Fatal(err)
	}
	for _, f := range config.Fields() {
		row := "\n| `" + f.Key + "` | "
		if !strings.Contains(page.String(), row) {
			t.Errorf("%s is not in the table", f.Key)
		}
	}
	for _, line := range strings.Split(page.String(), "\n") {
		if strings.HasPrefix(line, "|") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 7 {
			t.Errorf("not six cells: %s", line)
		}
	}
}
