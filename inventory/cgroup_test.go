package inventory

import (
	"testing"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
)

const (
	dashedUID = "11111111-2222-3333-4444-555555555555"
	staticUID = "0123456789abcdef0123456789abcdef"
)

func withUID(id, uid, parent string) Event {
	e := started(1, id, "p-"+uid, parent)
	e.Pod.UID = uid
	return e
}

// bugs.md B31: both drivers, 32-hex static UIDs, Guaranteed directly under
// kubepods; from the request and from the tree.
func TestCgroupOfAPod(t *testing.T) {
	for _, tt := range []struct{ name, uid, parent, path, qos string }{
		{"cgroupfs burstable", dashedUID, "/kubepods/burstable/pod" + dashedUID, "/kubepods/burstable/pod" + dashedUID, "Burstable"},
		{"cgroupfs guaranteed", dashedUID, "/kubepods/pod" + dashedUID, "/kubepods/pod" + dashedUID, "Guaranteed"},
		{"cgroupfs static", staticUID, "/kubepods/besteffort/pod" + staticUID, "/kubepods/besteffort/pod" + staticUID, "BestEffort"},
		{"cgroupfs below a root", dashedUID, "/kubelet/kubepods/burstable/pod" + dashedUID, "/kubelet/kubepods/burstable/pod" + dashedUID, "Burstable"},
		{"systemd burstable", dashedUID, "kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice",
			"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice", "Burstable"},
		{"systemd guaranteed", dashedUID, "kubepods-pod11111111_2222_3333_4444_555555555555.slice",
			"/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice", "Guaranteed"},
		{"systemd static", staticUID, "kubepods-pod" + staticUID + ".slice", "/kubepods.slice/kubepods-pod" + staticUID + ".slice", "Guaranteed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := NewStore(Options{})
			asked.Apply(withUID("s1", tt.uid, tt.parent))

			found := NewStore(Options{})
			path, ok := cgroupfs.ParsePodPath(tt.path)
			if !ok {
				t.Fatalf("%s is no pod path", tt.path)
			}
			b := listed("s1", "a", true)
			b.Pod.UID = tt.uid
			found.ApplyListing(Listing{Started: at(1), Sandboxes: []ListedSandbox{b}})
			found.ApplyTree([]cgroupfs.PodPath{path}, at(2))

			for from, s := range map[string]*Store{"request": asked, "tree": found} {
				p, ok := s.Snapshot().Pod(tt.uid)
				if !ok || p.Cgroup != tt.path || !p.OwnCgroup || p.QoS.Value != tt.qos || !p.QoS.Exact || p.QoS.Source != FromCgroup {
					t.Errorf("from the %s: %q own %v QoS %+v", from, p.Cgroup, p.OwnCgroup, p.QoS)
				}
			}
			if !found.InTree(tt.uid, tt.path) || found.InTree(tt.uid, "/other") || asked.InTree(tt.uid, tt.path) {
				t.Error("InTree")
			}
		})
	}
}

// A cgroup that is not surely the pod's alone is never its own: it must not be
// killed directly.
func TestCgroupThatIsNotThePodsOwn(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events []Event
		cgroup string
		qos    string
	}{
		{"kubepods itself", []Event{withUID("s1", dashedUID, "/kubepods")}, "/kubepods", ""},
		{"a QoS level", []Event{withUID("s1", dashedUID, "/kubepods/besteffort")}, "/kubepods/besteffort", "BestEffort"},
		{"a slice of another kind", []Event{withUID("s1", dashedUID, "system.slice")}, "/system.slice", ""},
		{"another pod's", []Event{withUID("s1", dashedUID, "/kubepods/burstable/pod"+staticUID)}, "/kubepods/burstable/pod" + staticUID, "Burstable"},
		{"shared by two pods", []Event{withUID("s1", dashedUID, "/kubepods/pod"+dashedUID), withUID("s2", staticUID, "/kubepods/pod"+dashedUID)}, "/kubepods/pod" + dashedUID, "Guaranteed"},
		{"none", []Event{withUID("s1", dashedUID, "")}, "", ""},
		{"above the root", []Event{withUID("s1", dashedUID, "/../kubepods/../../etc")}, "/etc", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewStore(Options{})
			for _, e := range tt.events {
				s.Apply(e)
			}
			p, _ := s.Snapshot().Pod(dashedUID)
			if p.OwnCgroup || p.Cgroup != tt.cgroup || p.QoS.Value != tt.qos {
				t.Errorf("cgroup %q own %v QoS %+v, want %q %q", p.Cgroup, p.OwnCgroup, p.QoS, tt.cgroup, tt.qos)
			}
		})
	}
}

// When the other pod is gone, the cgroup is the first one's alone again.
func TestSharedCgroupEnds(t *testing.T) {
	s := NewStore(Options{})
	s.Apply(withUID("s1", dashedUID, "/kubepods/pod"+dashedUID))
	s.Apply(withUID("s2", staticUID, "/kubepods/pod"+dashedUID))
	s.Apply(ended1(SandboxRemoved, 2, "s2"))
	if p, _ := s.Snapshot().Pod(dashedUID); !p.OwnCgroup {
		t.Error("still shared")
	}
	// Two sandboxes of the same pod share nothing with anybody.
	s.Apply(withUID("s3", dashedUID, "/kubepods/pod"+dashedUID))
	if p, _ := s.Snapshot().Pod(dashedUID); !p.OwnCgroup || len(p.Sandboxes) != 2 {
		t.Error("a second attempt made the cgroup a shared one")
	}
}

// The newest sandbox's cgroup parent counts.
func TestCgroupOfTheNewestSandbox(t *testing.T) {
	s := NewStore(Options{})
	s.Apply(withUID("s1", dashedUID, "/kubepods/burstable/pod"+dashedUID))
	newer := withUID("s2", dashedUID, "/kubepods/pod"+dashedUID)
	newer.Sandbox.Created = at(9)
	s.Apply(newer)
	if p, _ := s.Snapshot().Pod(dashedUID); p.Cgroup != "/kubepods/pod"+dashedUID || p.Sandboxes[0].ID != "s2" {
		t.Errorf("%q %v", p.Cgroup, p.Sandboxes)
	}
}

// bugs.md B28: static pods by the annotation kubelet sets.
func TestStatic(t *testing.T) {
	for _, tt := range []struct {
		annotations map[string]string
		want        bool
	}{
		{nil, false},
		{map[string]string{"kubernetes.io/config.source": "api"}, false},
		{map[string]string{"kubernetes.io/config.source": "file"}, true},
		{map[string]string{"kubernetes.io/config.source": "http"}, true},
		{map[string]string{"kubernetes.io/config.source": ""}, true},
		{map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "api"}, true},
	} {
		p := Pod{Annotations: tt.annotations}
		if p.Static() != tt.want {
			t.Errorf("%v: static %v", tt.annotations, p.Static())
		}
	}
}

func TestTreeSurprises(t *testing.T) {
	path := func(uid string) cgroupfs.PodPath {
		p, _ := cgroupfs.ParsePodPath("/kubepods/burstable/pod" + uid)
		return p
	}
	s := NewStore(Options{})
	walk := func(when int, want bool, why string, uids ...string) {
		t.Helper()
		var paths []cgroupfs.PodPath
		for _, u := range uids {
			paths = append(paths, path(u))
		}
		if got := s.ApplyTree(paths, at(when)); got != want {
			t.Errorf("at %d: surprise %v: %s", when, got, why)
		}
	}
	s.ApplyListing(Listing{Started: at(0), Finished: at(0), Sandboxes: []ListedSandbox{listed("s1", "a", true)}})
	walk(1, false, "a known pod", "uid-a")
	walk(2, true, "a pod nobody knows", "uid-a", "new")
	walk(3, false, "it was reported", "uid-a", "new")
	walk(9, false, "not yet again", "uid-a", "new")
	walk(10, true, "10 s after the list it is still unknown", "uid-a", "new")
	s.ApplyListing(Listing{Started: at(11), Finished: at(11), Sandboxes: []ListedSandbox{listed("s1", "a", true)}})
	walk(12, false, "listed a moment ago", "uid-a", "new")
	walk(13, false, "an unknown one went away", "uid-a")
	walk(14, true, "a ready pod's cgroup went away")
	walk(15, false, "it was reported")
	s.Apply(ended1(SandboxStopped, 16, "s1"))
	walk(17, true, "the cgroup of a pod that has stopped appears", "uid-a")
}
