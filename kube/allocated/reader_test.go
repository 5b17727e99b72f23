package allocated

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/kube"
)

// written returns a file by kubelet 1.37.2's own code (testdata/README.md).
func written(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/allocated_pods_state-1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sink keeps what it was given last.
type sink struct {
	calls int
	pods  map[string]kube.Allocation
}

func (s *sink) SetAllocations(pods map[string]kube.Allocation) {
	s.calls++
	s.pods = pods
}

func memory(l v1.ResourceList) string { return l.Memory().String() }

func TestParseKubeletsFile(t *testing.T) {
	pods, err := Parse(written(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 2 {
		t.Fatalf("%d pods, want 2", len(pods))
	}
	plain, level := pods["7f3c1c8e-0b7e-4f6e-9f6b-000000000001"], pods["7f3c1c8e-0b7e-4f6e-9f6b-000000000002"]
	if plain.Pod != nil || memory(plain.Containers["main"]) != "64Mi" || memory(plain.Containers["side"]) != "16Mi" {
		t.Errorf("plain pod %+v, want 64Mi and 16Mi, nothing at the pod's level", plain)
	}
	if level.Pod == nil || memory(level.Pod.Requests) != "100Mi" {
		t.Errorf("pod with pod-level resources %+v, want 100Mi there", level)
	}
	if l, ok := level.Containers["main"]; !ok || len(l) != 0 {
		t.Errorf("container without requests: %v, %v, want it there and empty", l, ok)
	}
}

func TestParseRefuses(t *testing.T) {
	good := written(t)
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"changed number": {bytes.Replace(good, []byte("64Mi"), []byte("65Mi"), 1), ErrChecksum},
		"cut off":        {good[:len(good)/2], ErrFormat},
		"empty":          {nil, ErrFormat},
		"other file":     {[]byte(`{"policyName":"None","machineState":{},"checksum":1}`), ErrFormat},
		"no checksum":    {[]byte(`{"data":"{}"}`), ErrFormat},
		"other entries":  {withSum(`{"entries":{"u":{"Allocated":{}}}}`), ErrFormat},
		"entries a list": {withSum(`{"entries":[1]}`), ErrFormat},
	} {
		if pods, err := Parse(c.content); !errors.Is(err, c.want) || pods != nil {
			t.Errorf("%s: %v, %v, want %v", name, pods, err, c.want)
		}
	}
	if pods, err := Parse(withSum(`{}`)); err != nil || len(pods) != 0 {
		t.Errorf("no pods: %v, %v, want an empty result", pods, err)
	}
}

// Kubernetes 1.34 keeps nothing of the pod level there, which is not the same as
// keeping that there is nothing.
func TestParseOfAnOlderKubelet(t *testing.T) {
	pods, err := Parse(withSum(`{"entries":{"old":{"ContainerResources":{"c":{}}},"new":{"ContainerResources":{"c":{}},"PodLevelResources":null}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if !pods["old"].ContainersOnly || pods["new"].ContainersOnly || pods["new"].Pod != nil {
		t.Errorf("%+v, want ContainersOnly for the old form alone", pods)
	}
}

// withSum makes a file around data. The checksum itself is tested against
// kubelet's own file.
func withSum(data string) []byte { return encode(data, checksum(data)) }

// follow runs a reader in a bubble, in front of a folder.
func follow(t *testing.T, test func(dir string, r *Reader, s *sink, log *logtest.Hook, later func())) {
	t.Helper()
	content := written(t)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		s := &sink{}
		r := NewReader(dir, s, time.Now, log)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		put(t, dir, content)
		go r.Run(ctx, time.Second)
		synctest.Wait()
		test(dir, r, s, hook, func() {
			time.Sleep(time.Minute)
			synctest.Wait()
		})
	})
}

// put replaces the file as kubelet does.
func put(t *testing.T, dir string, content []byte) {
	t.Helper()
	draft := filepath.Join(dir, "draft")
	if err := os.WriteFile(draft, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(draft, filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
}

func lines(h *logtest.Hook, l logrus.Level) (n int) {
	for _, e := range h.AllEntries() {
		if e.Level == l {
			n++
		}
	}
	return n
}

func TestReaderReadsWhatChanged(t *testing.T) {
	follow(t, func(dir string, r *Reader, s *sink, _ *logtest.Hook, later func()) {
		if s.calls != 1 || len(s.pods) != 2 {
			t.Fatalf("%d calls, %d pods at the start, want 1 and 2", s.calls, len(s.pods))
		}
		later()
		if s.calls != 1 {
			t.Errorf("an unchanged file was handed over %d times", s.calls)
		}
		put(t, dir, withSum(`{"entries":{"u":{"ContainerResources":{"c":{"requests":{"memory":"1Mi"}}}}}}`))
		later()
		if s.calls != 2 || memory(s.pods["u"].Containers["c"]) != "1Mi" || r.Status().Pods != 1 {
			t.Errorf("%d calls, %+v, %+v after a change, want the new pod", s.calls, s.pods, r.Status())
		}
	})
}

func TestReaderTakesABadFileForNone(t *testing.T) {
	follow(t, func(dir string, r *Reader, s *sink, log *logtest.Hook, later func()) {
		bad := bytes.Replace(written(t), []byte("64Mi"), []byte("65Mi"), 1)
		for range 3 {
			put(t, dir, bad)
			later()
		}
		if s.calls != 2 || s.pods != nil {
			t.Errorf("%d calls, %v, want the file's numbers taken back once", s.calls, s.pods)
		}
		if n := lines(log, logrus.WarnLevel); n != 1 {
			t.Errorf("%d lines about three bad files, want 1", n)
		}
		if st := r.Status(); st.Present || st.Problem == "" {
			t.Errorf("status %+v, want a problem", st)
		}
		put(t, dir, written(t))
		later()
		if len(s.pods) != 2 || !r.Status().Present || r.Status().Problem != "" {
			t.Errorf("%d pods, %+v after the file was good again, want 2 and no problem", len(s.pods), r.Status())
		}
	})
}

func TestReaderAbsentFileIsQuiet(t *testing.T) {
	follow(t, func(dir string, r *Reader, s *sink, log *logtest.Hook, later func()) {
		if err := os.Remove(filepath.Join(dir, FileName)); err != nil {
			t.Fatal(err)
		}
		later()
		if s.pods != nil || r.Status().Present || r.Status().Problem != "" || lines(log, logrus.WarnLevel) != 0 {
			t.Errorf("%v, %+v, %d warnings, want nothing known and nothing said", s.pods, r.Status(), lines(log, logrus.WarnLevel))
		}
	})
}

func TestReaderDoesNotWaitForAPipe(t *testing.T) {
	follow(t, func(dir string, r *Reader, _ *sink, _ *logtest.Hook, later func()) {
		pipe(t, filepath.Join(dir, "draft"))
		if err := os.Rename(filepath.Join(dir, "draft"), filepath.Join(dir, FileName)); err != nil {
			t.Fatal(err)
		}
		later()
		if r.Status().Present || r.Status().Problem == "" {
			t.Errorf("status %+v of a pipe, want a problem", r.Status())
		}
	})
}
