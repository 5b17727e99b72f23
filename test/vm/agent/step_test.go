package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

func TestStep(t *testing.T) {
	if _, err := exec.LookPath("choom"); err != nil {
		t.Skip("needs choom, of util-linux")
	}
	for _, tt := range []struct {
		name     string
		args     []string
		limit    time.Duration
		code     int
		timedOut bool
		output   string
	}{
		{"success", []string{"sh", "-c", "echo out; echo err >&2"}, time.Minute, 0, false, "out\nerr\n"},
		{"exit code", []string{"sh", "-c", "exit 7"}, time.Minute, 7, false, ""},
		{"signal", []string{"sh", "-c", "kill -9 $$"}, time.Minute, 128 + 9, false, ""},
		{"no such program", []string{"/nowhere/at/all"}, time.Minute, 127, false, "No such file"},
		{"no command", nil, time.Minute, 127, false, "without a command"},
		{"too long, with a child", []string{"sh", "-c", "echo begun; sleep 600 & sleep 600"}, 200 * time.Millisecond, 128 + 9, true, ""},
		{"environment", []string{"sh", "-c", "echo $A-$HOME-$PWD"}, time.Minute, 0, false, "x-/root-/\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			begun := time.Now()
			ended, err := runStep(&sender{enc: json.NewEncoder(&b)}, 3, protocol.Step{Args: tt.args, Env: []string{"A=x"}, Dir: "/", Timeout: tt.limit})
			if err != nil {
				t.Fatal(err)
			}
			if ended.Code != tt.code || ended.TimedOut != tt.timedOut || ended.Step != 3 {
				t.Errorf("%+v, want code %d, timed out %v", ended, tt.code, tt.timedOut)
			}
			if d := time.Since(begun); d > time.Minute {
				t.Errorf("took %v", d)
			}
			var out strings.Builder
			var kinds []string
			for dec := json.NewDecoder(&b); dec.More(); {
				var m protocol.Message
				if err := dec.Decode(&m); err != nil {
					t.Fatal(err)
				}
				out.Write(m.Output)
				switch {
				case m.Begin != nil:
					kinds = append(kinds, "begin")
				case m.Ended != nil:
					kinds = append(kinds, "ended")
				}
			}
			if len(kinds) != 2 || kinds[0] != "begin" || kinds[1] != "ended" {
				t.Errorf("messages: %q", kinds)
			}
			if !strings.Contains(out.String(), tt.output) {
				t.Errorf("output %q, want %q", out.String(), tt.output)
			}
		})
	}
}
