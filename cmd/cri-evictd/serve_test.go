package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/internal/golden"
)

// asMain makes the test binary the program itself, for tests of signals.
const asMain = "CRI_EVICTD_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

// bugs.md B99: a socket that speaks gRPC but not CRI.
func TestRuntimeThatIsNone(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{Without: []string{"runtime.v1.RuntimeService"}})
	direct, err := n.runtime.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = direct.Close() }()
	d := n.serve("")
	_, want := direct.Runtime().Version(t.Context(), &runtimeapi.VersionRequest{})
	_, got := n.client().Runtime().Version(t.Context(), &runtimeapi.VersionRequest{})
	if status.Code(got) != codes.Unimplemented || got.Error() != want.Error() {
		t.Errorf("through the proxy %v, directly %v", got, want)
	}
	if _, err := n.client().Image().ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Errorf("the other service: %v", err)
	}
	text := "unix://" + n.path("rt/cri.sock") + " does not serve runtime.v1.RuntimeService: is it the runtime's CRI socket?"
	d.waitFor(text)
	errs := d.log.lines("error")
	if len(errs) != 1 || !strings.HasPrefix(errs[0], text+" Calls are forwarded all the same: ") {
		t.Errorf("said %q", errs)
	}
	eventually(t, "status names the problem", func() bool {
		code, out, _ := command(t, "status", "--admin-socket", n.path("admin.sock"))
		return code == exitProblem && strings.Contains(out, "problem: runtime: "+text) && strings.Contains(out, "nothing is killed")
	})
}

// The runtime is not there yet when we start, as at boot.
func TestRuntimeThatComesLater(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	n.runtime.Crash()
	n.serve("")
	call := make(chan error, 1)
	go func() { // kubelet ends if this fails
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		_, err := n.client().Version(ctx)
		call <- err
	}()
	eventually(t, "status tells that no pod is known", func() bool {
		code, out, _ := command(t, "status", "--admin-socket", n.path("admin.sock"))
		return code == exitProblem && strings.Contains(out, "the runtime has not been listed yet: no pod is known, nothing is killed")
	})
	if err := n.runtime.Up(); err != nil {
		t.Fatal(err)
	}
	if err := <-call; err != nil {
		t.Errorf("a call made before the runtime was there: %v", err)
	}
	eventually(t, "status is good", n.healthy)
}

// The whole program against a checked-in machine: its numbers, and its pods with
// what the tree says of them.
func TestServeShowsTheTree(t *testing.T) {
	for tree, parent := range map[string]string{
		v2Tree: "kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice",
		"v1":   "/kubepods/burstable/pod" + burstableUID,
	} {
		t.Run(tree, func(t *testing.T) {
			n := newNode(t, tree, fakecri.Options{})
			n.disks(60 * gib)
			n.serve("").waitFor("following the proxy's events")
			sock := []string{"--admin-socket", n.path("admin.sock"), "-o", "json"}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			rt := n.client().Runtime()
			sb, err := rt.RunPodSandbox(ctx, sandboxRequest(burstableUID, "web", parent, 0))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sb.GetPodSandboxId(), Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{OomScoreAdj: 900}},
			}}); err != nil {
				t.Fatal(err)
			}
			var x admin.Explanation
			eventually(t, "the pod is ranked with its request", func() bool {
				_, out, _ := command(t, append([]string{"explain", "default/web"}, sock...)...)
				x = admin.Explanation{}
				return json.Unmarshal([]byte(out), &x) == nil && len(x.Candidates) == 1 && x.Candidates[0].Request.Value > 0
			})
			b, err := json.MarshalIndent(x.Candidates[0], "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "explain-"+tree+".json", append(b, '\n'))

			var s admin.Status
			eventually(t, "memory and disks were sampled", func() bool {
				_, out, _ := command(t, append([]string{"status"}, sock...)...)
				s = admin.Status{}
				unknown := func(x eviction.SignalNow) bool { return !x.Known || len(x.Thresholds) == 0 && x.SameAs == "" }
				return json.Unmarshal([]byte(out), &s) == nil && s.Engine.Memory.Samples > 0 && s.Engine.Inventory.Listed &&
					!slices.ContainsFunc(s.Engine.Signals, unknown)
			})
			if b, err = json.MarshalIndent(struct {
				Memory any
				Pods   int
			}{s.Engine.Memory.MemoryReport, s.Engine.Pods}, "", "  "); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "status-"+tree+".json", append(b, '\n'))
			eventually(t, "status is good", n.healthy)
			_, out, _ := command(t, "status", "--admin-socket", n.path("admin.sock"))
			golden.Check(t, "status-"+tree+".txt", []byte(withoutTimes(n.normal(out))))
		})
	}
}

// withoutTimes replaces what differs from run to run in the output for people.
func withoutTimes(s string) string {
	for pattern, by := range map[string]string{
		`(?m)^(cri-evictd:\s+).*, pid \d+, mode (\w+), started .*$`: "${1}$$VERSION, pid $$PID, mode $2, started $$TIME",
		`(samples:[ \t]+).*`:      "${1}$$SAMPLE",
		`(sources:[ \t]+).*`:      "${1}$$SOURCES",
		`clear, reached in .* at`: "clear, reached in $$TIME at",
		`below it for \d+s`:       "below it for $$TIME",
		`\d+ calls`:               "$$N calls",
		`\d+(ms|s|m)? ago`:        "$$TIME",
	} {
		s = regexp.MustCompile(pattern).ReplaceAllString(s, by)
	}
	if all := regexp.MustCompile(`(?m)^problem: .*` + noRealtime + `.*\n`); all.MatchString(s) { // where the tests may not
		s = all.ReplaceAllString(s, "") + "no problems\n"
	}
	return s
}

func TestEndRemovesOurSockets(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	d := n.serve("")
	d.waitFor("watching memory.available")
	eventually(t, "all sockets are there", func() bool { return len(socketsIn(t, n.dir)) == 4 })
	begun := time.Now()
	if code := d.stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if left := socketsIn(t, n.dir); !slices.Equal(left, []string{"rt/cri.sock"}) {
		t.Errorf("left behind: %v", left)
	}
	if errs := d.log.lines("error"); len(errs) != 0 {
		t.Errorf("said %q", errs)
	}
}

// The program as a process of its own: signals end it, the next one starts at
// the same place.
func TestSignals(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	args := append([]string{"serve", "--log-format", "json", "--config", n.config("")}, n.roots()...)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGINT} {
		var log logBuffer
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), asMain+"=1")
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		eventually(t, "it serves", n.healthy)
		n.mustFlow()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if clean := sig != syscall.SIGKILL; clean != (err == nil) {
				t.Errorf("%s: %v\n%s", sig, err, &log)
			}
		case <-time.After(deadline):
			_ = cmd.Process.Kill()
			t.Fatalf("%s does not end it:\n%s", sig, &log)
		}
		want := 1
		if sig == syscall.SIGKILL {
			want = 4 // stale ones, which the next start replaces
		}
		if left := socketsIn(t, n.dir); len(left) != want {
			t.Errorf("%s: left behind %v", sig, left)
		}
	}
}
