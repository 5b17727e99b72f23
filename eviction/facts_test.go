package eviction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// A pod that Kubernetes deletes needs no hold: kubelet does not start it again.
func TestHoldEndsWithThePod(t *testing.T) {
	for reason, end := range map[string]func(r *rig, is func(uid string) bool){
		"pod-deleted": func(r *rig, is func(string) bool) { r.ending = is },
		"pod-gone":    func(r *rig, is func(string) bool) { r.gone = is },
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t)
			over := make(chan struct{})
			end(r, func(uid string) bool {
				select {
				case <-over:
					return uid == "hog"
				default:
					return false
				}
			})
			r.add(testPod{uid: "hog", usage: 2 * gi})
			defer r.evicted("hog")()
			r.node.setAvailable(300 * mi) // the pressure stays
			pass(5 * time.Second)
			if got := r.state("hog"); got != "killed" {
				t.Fatalf("%s before the end", got)
			}
			close(over)
			pass(2 * time.Second)
			if got := r.state("hog"); got != "released "+reason {
				t.Errorf("%s, want released %s", got, reason)
			}
		})
	}
}

// What a pod that is being deleted will give back is waited for, as long as that
// is soon, before another one is evicted softly.
func TestSoftWaitsForPodsBeingDeleted(t *testing.T) {
	for name, tt := range map[string]struct {
		grace  time.Duration // until its end
		usage  uint64
		victim string // "" for none until 20 s past the threshold's grace
	}{
		"soon and enough":         {45 * time.Second, 3 * gi, ""},
		"soon and not enough":     {45 * time.Second, 100 * mi, "neighbour"},
		"with an hour of grace":   {time.Hour, 3 * gi, "leaving"}, // over its request, and the larger
		"overdue for ten seconds": {20 * time.Second, 3 * gi, "leaving"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := softRig(t)
				r.add(testPod{uid: "leaving", usage: tt.usage})
				r.add(testPod{uid: "neighbour", usage: 900 * mi})
				r.facts.endsBy["leaving"] = time.Now().Add(tt.grace)
				defer r.startSoft()()
				r.node.setAvailable(900 * mi)
				pass(50 * time.Second) // the grace of the threshold is 30 s
				var want []string
				if tt.victim != "" {
					want = []string{"evicted " + tt.victim}
				}
				got := r.outcomes()
				if got = got[:min(len(got), 1)]; !slices.Equal(got, want) {
					t.Errorf("decisions %q, want %q; waiting: %q", got, want, r.eng.softNow()[0].Waiting)
				}
			})
		})
	}
}

func TestStaticPodsOfTheControlPlane(t *testing.T) {
	for name, tt := range map[string]struct {
		names     []string
		here      []testPod
		victim    string
		unnamed   string
		protected bool // protectStatic: true
	}{
		"none here":              {victim: "hog"},
		"the API server is here": {here: []testPod{{name: "kube-apiserver-node1", uid: "api"}}, victim: "small", unnamed: "kube-apiserver-node1"},
		"and is named":           {names: []string{"kube-apiserver"}, here: []testPod{{name: "kube-apiserver-node1", uid: "api", usage: 5 * gi}}, victim: "hog"},
		"one of two is named":    {names: []string{"etcd"}, here: []testPod{{name: "etcd-n", uid: "e"}, {name: "kube-scheduler-n", uid: "s"}}, victim: "small", unnamed: "kube-scheduler-n"},
		"by kubeadm's label":     {here: []testPod{{name: "other", uid: "o", labels: map[string]string{"tier": "control-plane"}}}, victim: "small", unnamed: "other"},
		"by how its name begins": {names: []string{"kube"}, here: []testPod{{name: "kube-apiserver-n", uid: "api", usage: 5 * gi}}, victim: "hog"},
		"protectStatic is true":  {here: []testPod{{name: "etcd", uid: "e"}}, victim: "small", protected: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.set.Protection.Static, r.set.Protection.StaticNames, r.set.Protection.Namespaces = tt.protected, tt.names, nil
				r.add(testPod{uid: "hog", name: "static-hog", usage: 2 * gi, static: true})
				r.add(testPod{uid: "small", usage: 500 * mi})
				for _, p := range tt.here {
					p.static = true
					r.add(p)
				}
				defer r.evicted(tt.victim)()
				got := strings.Join(r.eng.State().ControlPlane, " ")
				if got != tt.unnamed {
					t.Errorf("unprotected: %q, want %q", got, tt.unnamed)
				}
				if n := strings.Count(strings.Join(r.lines.all(), "\n"), ControlPlaneText); n != len(r.eng.State().ControlPlane) {
					t.Errorf("said %d times", n)
				}
			})
		})
	}
}

// A component that is just being restarted makes nobody else a victim.
func TestControlPlaneIsRemembered(t *testing.T) {
	pod := func(name string) *inventory.Pod {
		return &inventory.Pod{Ref: inventory.Ref{Name: name}, Annotations: map[string]string{"kubernetes.io/config.source": "file"}}
	}
	log, _ := quietLog()
	pl := newPlanner(newCgroups(newNode(gi)), Protection{}, log)
	pl.lookForControlPlane([]*inventory.Pod{pod("etcd-n"), pod("web-n")})
	pl.lookForControlPlane([]*inventory.Pod{pod("web-n")})
	if !slices.Equal(pl.controlPlane, []string{"etcd-n"}) {
		t.Errorf("%q", pl.controlPlane)
	}
	pl.protect.StaticNames = []string{"etcd"} // by a reload
	pl.lookForControlPlane([]*inventory.Pod{pod("etcd-n"), pod("web-n")})
	if len(pl.controlPlane) != 0 {
		t.Errorf("%q after it was named", pl.controlPlane)
	}
}

// Until its priority is known a pod of kube-system is nobody's victim, whatever
// protectedNamespaces says; where nobody will tell, that says it all.
func TestUnknownPriorityInKubeSystem(t *testing.T) {
	all := func(absent bool) func() []SourceNow {
		return func() []SourceNow { return []SourceNow{{Name: SourcePodsAPI, Absent: absent}} }
	}
	for name, tt := range map[string]struct {
		sources func() []SourceNow
		silent  bool
		victim  string
	}{
		"not told yet":   {all(false), true, "small"},
		"told":           {all(false), false, "dns"},
		"nobody tells":   {all(true), true, "dns"},
		"without a word": {nil, true, "dns"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.set.Protection.Namespaces, r.sources, r.facts.silent = []string{}, tt.sources, tt.silent
				r.add(testPod{uid: "dns", namespace: "kube-system", usage: 2 * gi, parent: "/kubepods/besteffort/poddns"})
				r.add(testPod{uid: "small", usage: 500 * mi, parent: "/kubepods/besteffort/podsmall"})
				defer r.evicted(tt.victim)()
			})
		})
	}
}

// What a tenant can write himself buys him nothing, and the neighbour that stays
// within its request lives (promise 7).
func TestCheatingTenant(t *testing.T) {
	const neighbour = "neighbour"
	for name, tt := range map[string]struct {
		add    func(r *rig) (cheats []string)
		silent bool // only what CRI and the annotations say is known
	}{
		"priority and request annotations": {silent: true, add: func(r *rig) []string {
			r.add(testPod{uid: "cheat", namespace: "tenant", usage: 2 * gi, parent: "/kubepods/besteffort/podcheat", annotations: map[string]string{
				inventory.PriorityAnnotation: "2000000000", inventory.MemoryRequestAnnotation: "100Gi", "kubernetes.io/config.source": "api",
			}})
			return []string{"cheat"}
		}},
		"protected labels": {add: func(r *rig) []string {
			r.add(testPod{uid: "cheat", namespace: "tenant", usage: 2 * gi, labels: map[string]string{"keep": "yes", "tier": "control-plane"}})
			return []string{"cheat"}
		}},
		"200 small pods": {add: func(r *rig) (all []string) {
			for i := range 200 {
				uid := fmt.Sprintf("small-%03d", i)
				r.add(testPod{uid: uid, namespace: "tenant", usage: 12 * mi, request: mi})
				all = append(all, uid)
			}
			return all
		}},
		"a memory emptyDir of 8 GiB": {add: func(r *rig) []string {
			r.teller = &fakeTeller{working: true} // without that the stop would free nothing of it
			r.node.capacity = 16 * gi
			c := r.add(testPod{uid: "cheat", namespace: "tenant", usage: 8*gi + 50*mi, request: 100 * mi})
			c.change(func(c *fakeCgroup) { c.shmem = 8 * gi })
			r.cgroups.volumes["cheat"] = 8 * gi
			return []string{"cheat"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.facts.silent = tt.silent
				parent := ""
				if tt.silent {
					parent = "/kubepods/podneighbour" // Guaranteed
				}
				n := r.add(testPod{uid: neighbour, namespace: "other", usage: 3 * gi, request: 4 * gi, parent: parent})
				cheats := tt.add(r)
				stop := r.start()
				defer stop()
				pass(2 * time.Second)
				r.node.setAvailable(400 * mi)
				pass(time.Minute)
				if killsOf(n) != 0 {
					t.Error("the neighbour died")
				}
				hit := 0
				for _, o := range r.outcomes() {
					if outcome, who, _ := strings.Cut(o, " "); outcome == "evicted" && slices.Contains(cheats, who) {
						hit++
					}
				}
				if hit == 0 {
					t.Errorf("nobody of the cheats went: %q", r.outcomes())
				}
			})
		})
	}
}
