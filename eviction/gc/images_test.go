package gc

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// imageNode is what PlanImages is asked about.
type imageNode struct {
	images []Image
	uses   map[string]Use
	rules  ImageRules
}

func newImageNode() *imageNode {
	n := &imageNode{uses: map[string]Use{}}
	n.rules = ImageRules{
		Now: noon, MinAge: 2 * time.Minute, Watched: time.Hour, InUse: map[string]string{}, Sandbox: map[string]string{},
		InFlight: func([]string) bool { return false },
		Use: func(id string) (Use, bool) {
			u, ok := n.uses[id]
			return u, ok
		},
	}
	return n
}

// add has an image whose last use is so long ago; it was first seen a day ago.
func (n *imageNode) add(id string, unused time.Duration, names ...string) *Image {
	n.images = append(n.images, Image{ID: id, Names: names, Size: 100})
	n.uses[id] = Use{FirstSeen: noon.Add(-24 * time.Hour), LastUsed: noon.Add(-unused)}
	return &n.images[len(n.images)-1]
}

func (n *imageNode) plan() (remove, keep string, steps []ImageStep) {
	r, k := PlanImages(n.images, n.rules)
	join := func(steps []ImageStep) string {
		var ids []string
		for _, s := range steps {
			ids = append(ids, s.ID)
		}
		return strings.Join(ids, " ")
	}
	return join(r), join(k), append(r, k...)
}

func TestPlanImages(t *testing.T) {
	hash := "sha256:" + strings.Repeat("ab", 32)
	for _, c := range []struct {
		name  string
		build func(*imageNode)
		want  string
		why   string // of the only one that stays
	}{
		{"the one not used for the longest time first", func(n *imageNode) {
			n.add("young", time.Hour)
			n.add("old", 3*time.Hour)
			n.add("middle", 2*time.Hour)
		}, "old middle young", ""},
		{"never used: since it was first seen", func(n *imageNode) {
			n.add("used", 30*time.Hour)
			n.add("never", 24*time.Hour)
			n.add("late", 23*time.Hour)
		}, "used never late", ""},
		{"same time: the larger first, then by ID", func(n *imageNode) {
			n.add("b", time.Hour)
			n.add("a", time.Hour)
			n.add("c", time.Hour).Size = 101
		}, "c a b", ""},
		{"no ID", func(n *imageNode) { n.add("", time.Hour, "a:1") }, "", "has no ID"},
		{"pinned", func(n *imageNode) { n.add("i", time.Hour).Pinned = true }, "", "pinned"},
		{"sandbox image by ID", func(n *imageNode) {
			n.add("i", time.Hour, "registry.local/infra:3")
			n.rules.Sandbox["i"] = "default/p"
		}, "", "sandboxes are made of it: default/p"},
		{"sandbox image by name", func(n *imageNode) { n.add("i", time.Hour, "registry.local/pause-amd64:3.5") }, "", "name of a sandbox image"},
		{"sandbox image by digest", func(n *imageNode) { n.add("i", time.Hour, "registry.local/k8s/pause@"+hash) }, "", "name of a sandbox image"},
		{"not every name with pause in it", func(n *imageNode) { n.add("i", time.Hour, "registry.local/pause/app:1") }, "i", ""},
		{"in use", func(n *imageNode) {
			n.add("i", time.Hour)
			n.rules.InUse["i"] = "main"
		}, "", "a container needs it: main"},
		{"in flight", func(n *imageNode) {
			n.add("i", time.Hour, "app:1")
			n.rules.InFlight = func(names []string) bool { return strings.Join(names, " ") == "i docker.io/library/app:1" }
		}, "", "is being pulled"},
		{"never seen", func(n *imageNode) {
			n.add("i", time.Hour)
			delete(n.uses, "i")
		}, "", "not seen before"},
		{"used a minute ago", func(n *imageNode) { n.add("i", 119*time.Second) }, "", "less than imageMinimumGCAge"},
		{"used two minutes ago", func(n *imageNode) { n.add("i", 2*time.Minute) }, "i", ""},
		// B71: the pull has ended, its container is not there yet.
		{"pulled a minute ago", func(n *imageNode) {
			n.add("i", time.Hour)
			n.uses["i"] = Use{FirstSeen: noon.Add(-time.Hour), LastUsed: noon.Add(-time.Hour), LastPulled: noon.Add(-time.Minute)}
		}, "", "less than imageMinimumGCAge"},
		{"seen a minute ago, with an old use of another life", func(n *imageNode) {
			n.add("i", time.Hour)
			n.uses["i"] = Use{FirstSeen: noon.Add(-time.Minute), LastUsed: noon.Add(-time.Hour)}
		}, "", "less than imageMinimumGCAge"},
		{"a clock that was set back", func(n *imageNode) { n.add("i", -time.Hour) }, "", "less than imageMinimumGCAge"},
		{"no minimum age, and a clock that was set back", func(n *imageNode) {
			n.rules.MinAge = 0
			n.add("i", -time.Hour)
			n.add("j", time.Second)
		}, "j", "is of interest since 0s"},
		{"watched for a minute only", func(n *imageNode) {
			n.add("i", time.Hour)
			n.rules.Watched = time.Minute
		}, "", "uses are followed since 1m0s only"},
		{"pulled again and again", func(n *imageNode) {
			n.add("i", time.Hour)
			u := n.uses["i"]
			u.Until = noon.Add(time.Second)
			n.uses["i"] = u
		}, "", "pulled again and again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newImageNode()
			c.build(n)
			remove, keep, steps := n.plan()
			if remove != c.want {
				t.Errorf("goes: %q, want %q", remove, c.want)
			}
			if c.why == "" {
				if keep != "" {
					t.Errorf("stays: %q", keep)
				}
				return
			}
			if last := steps[len(steps)-1]; !strings.Contains(last.Why, c.why) {
				t.Errorf("%q stays because %q, want %q", keep, last.Why, c.why)
			}
		})
	}
}

// Several names of an image are one image: what protects one of them protects it,
// and it is not removed twice.
func TestSeveralNamesAreOneImage(t *testing.T) {
	n := newImageNode()
	n.add("i", time.Hour, "a:1")
	n.images = append(n.images, Image{ID: "i", Names: []string{"a:1", "b:1"}, Size: 100}, Image{ID: "j", Names: []string{"c:1"}}, Image{ID: "j", Names: []string{"d:1"}, Pinned: true})
	n.uses["j"] = n.uses["i"]
	remove, keep, steps := n.plan()
	if remove != "i" || keep != "j" || strings.Join(steps[0].Names, " ") != "a:1 b:1" || steps[0].Size != 100 {
		t.Errorf("goes %q, stays %q: %+v", remove, keep, steps)
	}
}

func TestMaximumAge(t *testing.T) {
	n := newImageNode()
	n.rules.MaxAge = 2 * time.Hour
	n.add("old", 2*time.Hour+time.Second)
	n.add("not", 2*time.Hour)
	r, _ := PlanImages(n.images, n.rules)
	if len(r) != 2 || !r[0].Expired || r[1].Expired {
		t.Errorf("%+v", r)
	}
}

// bugs.md B72: pulled three times within 15 min, never used.
func TestCaseB72(t *testing.T) {
	u := Use{FirstSeen: noon, LastUsed: noon}
	for _, at := range []time.Duration{0, 7 * time.Minute} {
		u.pulled(noon.Add(at))
		if !u.Until.IsZero() {
			t.Fatalf("after %s: %+v", at, u)
		}
	}
	third := noon.Add(14 * time.Minute)
	u.pulled(third)
	if !u.Until.Equal(third.Add(time.Hour)) {
		t.Errorf("counts as used until %s", u.Until)
	}
	u.used(third)
	u.pulled(third.Add(time.Minute))
	if !u.Until.IsZero() || len(u.Pulls) != 1 {
		t.Errorf("after a use: %+v", u)
	}
	slow := Use{}
	for i := range 4 {
		slow.pulled(noon.Add(time.Duration(i) * 8 * time.Minute))
	}
	if !slow.Until.IsZero() {
		t.Errorf("three pulls within more than 15 min: %+v", slow)
	}
}

func TestAllowList(t *testing.T) {
	hash := strings.Repeat("0123456789abcdef", 4)
	digest := "sha256:" + hash
	img := func(id string, names ...string) *Image { return &Image{ID: id, Names: names} }
	for _, c := range []struct {
		entry    string
		img      *Image
		matching bool
	}{
		{"app:1", img("i", "docker.io/library/app:1"), true},
		{"app", img("i", "docker.io/library/app:latest"), true},
		{"docker.io/library/app:1", img("i", "app:1"), true},
		{"app:1", img("i", "app:2"), false},
		{"app:1", img("i"), false},
		{"registry.example/base/*", img("i", "registry.example/base/x:1"), true},
		{"registry.example/base/*", img("i", "registry.example/other:1", "registry.example/base/y@"+digest), true},
		{"registry.example/base/*", img("i", "registry.example/basement:1"), false},
		{"app*", img("i", "docker.io/library/app-server:1"), true},
		{"docker.io/library/app*", img("i", "app-server:1"), true},
		{"*", img("i"), true},
		{digest, img(digest), true},
		{digest, img("i", "registry.example/app@"+digest), true},
		{digest, img("i", "registry.example/app@sha256:"+strings.Repeat("1", 64)), false},
		{"registry.example/app@" + digest, img("i", "registry.example/app@"+digest), true},
	} {
		list, _, err := ParseAllowList([]string{"nothing.example/x:1", c.entry})
		if err != nil {
			t.Errorf("%s: %v", c.entry, err)
			continue
		}
		entry, ok := list.Match(c.img)
		if ok != c.matching || ok && entry != c.entry {
			t.Errorf("%s and %+v: %v by %q", c.entry, c.img, ok, entry)
		}
	}
	for _, bad := range []string{"", "a*b", "**", "*a", "sha256:12", "Not A Name", "a@sha256:12"} {
		if _, i, err := ParseAllowList([]string{"app:1", bad}); !errors.Is(err, ErrAllowEntry) || i != 1 {
			t.Errorf("%q: entry %d, %v", bad, i, err)
		}
	}
	var none AllowList
	if _, ok := none.Match(img("i", "a:1")); ok {
		t.Error("an empty list has everything")
	}
}
