package gc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// noon is when the tables' plans are made.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// node is what a runtime has, in short words.
type node struct{ Listing }

// sandbox adds one of pod uid, so old; its ID is uid/attempt.
func (n *node) sandbox(uid string, attempt uint32, ready bool, age time.Duration) {
	n.Sandboxes = append(n.Sandboxes, Sandbox{
		ID: fmt.Sprintf("%s/%d", uid, attempt), Pod: inventory.Ref{Namespace: "default", Name: uid, UID: uid}, Attempt: attempt, Ready: ready, Created: noon.Add(-age),
	})
}

// container adds one to the sandbox; its ID is sandbox/name/attempt.
func (n *node) container(sandbox, name string, attempt uint32, state ContainerState, age time.Duration) {
	n.Containers = append(n.Containers, Container{
		ID: fmt.Sprintf("%s/%s/%d", sandbox, name, attempt), SandboxID: sandbox, Name: name, Attempt: attempt, State: state, Created: noon.Add(-age),
		Images: []string{"app:1"},
	})
}

// rules are the plainest ones: nothing is known of any pod, and everything that is
// over has been for an hour.
func rules(pods map[string]PodState) ContainerRules {
	return ContainerRules{
		Now: noon, Finished: true, Pod: func(uid string) PodState { return pods[uid] },
		DeadFor: func(string) time.Duration { return time.Hour },
	}
}

func idsOf(steps []ContainerStep) string {
	var out []string
	for _, s := range steps {
		out = append(out, s.ID)
	}
	return strings.Join(out, " ")
}

// Each row of facts/kubelet.md §6.8, and what kubelet's own GC keeps (§5.2).
func TestPlanContainers(t *testing.T) {
	hour := time.Hour
	for _, c := range []struct {
		name  string
		pods  map[string]PodState
		rules func(*ContainerRules)
		build func(*node)
		want  string // IDs in order
		why   string // of what stays: part of each reason, joined by |
	}{
		{
			name: "running containers are nobody's business",
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 0, Running, hour)
			},
		},
		{
			name: "older dead instances go, the newest dead one stays",
			build: func(n *node) {
				n.sandbox("p", 0, true, 5*hour)
				for i := range 4 {
					n.container("p/0", "a", uint32(i), Exited, time.Duration(4-i)*hour)
				}
			},
			want: "p/0/a/0 p/0/a/1 p/0/a/2", why: "newest of its name",
		},
		{
			// The last end is what lastState and logs -p show.
			name: "crash loop that runs: the last end stays",
			build: func(n *node) {
				n.sandbox("p", 0, true, 5*hour)
				n.container("p/0", "a", 3, Exited, 3*hour)
				n.container("p/0", "a", 4, Exited, 2*hour)
				n.container("p/0", "a", 5, Running, hour)
			},
			want: "p/0/a/3", why: "newest of its name that has ended",
		},
		{
			name: "newest dead instance that will be restarted",
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 7, Exited, hour)
			},
			why: "newest of its name",
		},
		{
			name: "completed container of a pod that is not over, completed init container, dead sidecar",
			build: func(n *node) {
				n.sandbox("p", 0, true, 3*hour)
				n.container("p/0", "init", 0, Exited, 3*hour)
				n.container("p/0", "sidecar", 0, Exited, 2*hour)
				n.container("p/0", "once", 0, Exited, hour)
				n.container("p/0", "main", 0, Running, hour)
			},
			why: "newest of its name|newest of its name|newest of its name",
		},
		{
			name: "last record of a Never pod whose sandbox is dead",
			build: func(n *node) {
				n.sandbox("p", 0, false, hour)
				n.container("p/0", "a", 0, Exited, hour)
			},
			why: "newest of its name|a container in it stays",
		},
		{
			name: "containers of an older, dead sandbox, one without a successor",
			build: func(n *node) {
				n.sandbox("p", 0, false, 3*hour)
				n.container("p/0", "a", 0, Exited, 3*hour)
				n.container("p/0", "once", 0, Exited, 3*hour)
				n.sandbox("p", 1, true, hour)
				n.container("p/1", "a", 1, Exited, 2*hour)
				n.container("p/1", "a", 2, Running, hour)
			},
			want: "p/0/a/0", why: "newest of its name|newest of its name that has ended|a container in it stays",
		},
		{
			name: "an older sandbox goes with its last container",
			build: func(n *node) {
				n.sandbox("p", 0, false, 4*hour)
				n.container("p/0", "a", 0, Exited, 4*hour)
				n.sandbox("p", 1, false, 3*hour)
				n.sandbox("p", 2, true, 2*hour)
				n.container("p/2", "a", 1, Exited, 2*hour)
				n.container("p/2", "a", 2, Running, hour)
			},
			want: "p/0/a/0 p/0 p/1", why: "newest of its name that has ended",
		},
		{
			name: "newest sandbox of a live pod, not ready and empty",
			build: func(n *node) {
				n.sandbox("p", 0, false, 2*hour)
				n.sandbox("p", 1, false, hour)
			},
			want: "p/0", why: "newest of its pod",
		},
		{
			name: "created container: a young one may be started yet",
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 0, Created, 9*time.Minute)
				n.container("p/0", "a", 1, Running, 8*time.Minute)
				n.container("p/0", "b", 0, Created, 11*time.Minute)
				n.container("p/0", "b", 1, Running, 10*time.Minute)
				n.container("p/0", "c", 0, Created, hour)
			},
			want: "p/0/b/0", why: "may be started yet|newest of its name",
		},
		{
			// The record of the last real end is what the back-off is counted from.
			name: "a creation that never started is no successor of the last end",
			build: func(n *node) {
				n.sandbox("p", 0, true, 3*hour)
				n.container("p/0", "a", 0, Exited, 2*hour)
				n.container("p/0", "a", 1, Created, hour)
			},
			why: "newest of its name that has ended|newest of its name",
		},
		{
			name: "unknown state", pods: map[string]PodState{"p": {Gone: true}},
			build: func(n *node) {
				n.sandbox("p", 0, false, hour)
				n.container("p/0", "a", 0, Unknown, 2*hour)
				n.container("p/0", "a", 1, Exited, hour)
			},
			why: "state is unknown|newest of its name|a container in it stays",
		},
		{
			// B81
			name: "a minute must have passed",
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 0, Exited, 90*time.Second)
				n.container("p/0", "a", 1, Exited, 30*time.Second)
				n.container("p/0", "a", 2, Running, 20*time.Second)
			},
			why: "successor is not 1m0s old|newest of its name that has ended",
		},
		{
			name: "in a hard breach ten seconds will do", rules: func(r *ContainerRules) { r.Hard = true },
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 0, Exited, 90*time.Second)
				n.container("p/0", "a", 1, Exited, 30*time.Second)
				n.container("p/0", "a", 2, Running, 20*time.Second)
			},
			want: "p/0/a/0", why: "newest of its name that has ended",
		},
		{
			name: "contents of a pod that is gone, all of it", pods: map[string]PodState{"p": {Gone: true}},
			build: func(n *node) {
				n.sandbox("p", 0, false, 2*hour)
				n.container("p/0", "a", 0, Exited, 2*hour)
				n.sandbox("p", 1, false, hour)
				n.container("p/1", "a", 1, Exited, hour)
				n.container("p/1", "b", 0, Created, time.Second)
			},
			want: "p/0/a/0 p/1/a/1 p/1/b/0 p/0 p/1",
		},
		{
			name: "gone, but something runs: somebody is wrong", pods: map[string]PodState{"p": {Gone: true}, "q": {Gone: true}},
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 0, Exited, hour)
				n.sandbox("q", 0, false, hour)
				n.container("q/0", "a", 0, Exited, hour)
				n.container("q/0", "b", 0, Running, hour)
			},
			why: "newest of its name|newest of its name|a container in it stays",
		},
		{
			name: "finished pod: containers go last, its newest sandbox stays", pods: map[string]PodState{"p": {Finished: true}, "q": {}},
			build: func(n *node) {
				n.sandbox("p", 0, false, 3*hour)
				n.container("p/0", "a", 0, Exited, 3*hour)
				n.sandbox("q", 0, true, 2*hour)
				n.container("q/0", "a", 0, Exited, 2*hour)
				n.container("q/0", "a", 1, Exited, hour)
			},
			want: "q/0/a/0 p/0/a/0", why: "newest of its name|newest of its pod",
		},
		{
			name: "finished pod without pressure", pods: map[string]PodState{"p": {Finished: true}}, rules: func(r *ContainerRules) { r.Finished = false },
			build: func(n *node) {
				n.sandbox("p", 0, false, hour)
				n.container("p/0", "a", 0, Exited, hour)
			},
			why: "newest of its name|a container in it stays",
		},
		{
			name: "finished a moment ago", pods: map[string]PodState{"p": {Finished: true}},
			rules: func(r *ContainerRules) { r.DeadFor = func(string) time.Duration { return 59 * time.Second } },
			build: func(n *node) {
				n.sandbox("p", 0, false, hour)
				n.container("p/0", "a", 0, Exited, hour)
			},
			why: "not known to be over for 1m0s|a container in it stays",
		},
		{
			name: "finished for the API, and kubelet has not ended it", pods: map[string]PodState{"p": {Finished: true}},
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 0, Exited, hour)
			},
			why: "newest of its name",
		},
		{
			// After a restart kubelet would run it again: no API object remembers.
			name: "static pod", pods: map[string]PodState{"p": {Finished: true, Static: true}, "q": {Gone: true, Static: true}},
			build: func(n *node) {
				n.sandbox("p", 0, false, hour)
				n.container("p/0", "a", 0, Exited, hour)
				n.sandbox("q", 0, false, hour)
				n.container("q/0", "a", 0, Exited, hour)
			},
			why: "newest of its name|newest of its name|a container in it stays|a container in it stays",
		},
		{
			name: "held pod", pods: map[string]PodState{"p": {Gone: true, Held: true}},
			build: func(n *node) {
				n.sandbox("p", 0, false, hour)
				n.container("p/0", "a", 0, Exited, 2*hour)
				n.container("p/0", "a", 1, Exited, hour)
			},
			why: "is held|is held|is held",
		},
		{
			name: "a container without its sandbox, a sandbox without a UID",
			build: func(n *node) {
				n.container("x/0", "a", 0, Exited, 2*hour)
				n.container("x/0", "a", 1, Exited, hour)
				n.sandbox("", 0, false, 2*hour)
				n.sandbox("", 1, false, hour)
				n.container("/0", "a", 0, Exited, 2*hour)
				n.container("/1", "a", 1, Exited, hour)
			},
			why: "no UID|no UID|sandbox is not listed|sandbox is not listed|no UID|no UID",
		},
		{
			name: "a clock that was set, and a count that began anew, prove nothing",
			build: func(n *node) {
				n.sandbox("p", 0, true, hour)
				n.container("p/0", "a", 2, Exited, 3*hour)
				n.container("p/0", "a", 0, Exited, 2*hour)
				n.container("p/0", "b", 0, Exited, hour)
				n.container("p/0", "b", 1, Exited, 2*hour)
				n.container("p/0", "c", 0, Exited, hour)
				n.container("p/0", "c", 1, Exited, -hour)
			},
			why: "newest of its name|newest of its name|newest of its name|newest of its name|successor is not|newest of its name",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n node
			c.build(&n)
			r := rules(c.pods)
			if c.rules != nil {
				c.rules(&r)
			}
			// The order of a list means nothing.
			slices.Reverse(n.Containers)
			slices.Reverse(n.Sandboxes)
			remove, keep := PlanContainers(&n.Listing, r)
			if got := idsOf(remove); got != c.want {
				t.Errorf("goes: %s\nwant: %s", got, c.want)
			}
			slices.SortStableFunc(keep, func(a, b ContainerStep) int {
				if a.Kind != b.Kind {
					return strings.Compare(a.Kind, b.Kind)
				}
				return strings.Compare(a.ID, b.ID)
			})
			parts := strings.Split(c.why, "|")
			if c.why == "" {
				parts = nil
			}
			if len(parts) != len(keep) {
				t.Fatalf("%d stay, want %d: %+v", len(keep), len(parts), keep)
			}
			for i, k := range keep {
				if !strings.Contains(k.Why, parts[i]) {
					t.Errorf("%s stays because %q, want %q", k.ID, k.Why, parts[i])
				}
			}
		})
	}
}

// bugs.md B81: a container of a live pod ended 30 s ago with code 1. It stays, and
// so does what it left for people to look at; only what came before it goes, and in
// a hard breach sooner.
func TestCaseB81(t *testing.T) {
	var n node
	n.sandbox("p", 0, true, time.Hour)
	n.container("p/0", "main", 0, Exited, 10*time.Minute)
	n.container("p/0", "main", 1, Exited, 5*time.Minute)
	n.container("p/0", "main", 2, Exited, 45*time.Second) // it ended 30 s ago
	for _, hard := range []bool{false, true} {
		r := rules(nil)
		r.Hard = hard
		want := "p/0/main/0"
		if hard {
			want = "p/0/main/0 p/0/main/1" // its successor was created 45 s ago
		}
		if remove, _ := PlanContainers(&n.Listing, r); idsOf(remove) != want {
			t.Errorf("hard %v: %s goes, want %s", hard, idsOf(remove), want)
		}
	}
}
