package gc

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// clock is one that a test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time       { return c.t }
func (c *clock) pass(d time.Duration) { c.t = c.t.Add(d) }
func newClock() *clock                { return &clock{t: noon} }
func imageOf(id, name string) []Image { return []Image{{ID: id, Names: []string{name}}} }

func TestUsesAreRealUses(t *testing.T) {
	c := newClock()
	u := NewUses(nil, c.now)
	u.Listed(imageOf("i", "app:1"))
	if got, _ := u.Use("i"); !got.FirstSeen.Equal(noon) || !got.LastUsed.Equal(noon) {
		t.Errorf("never seen before counts as used now: %+v", got)
	}
	c.pass(time.Minute)
	u.Begin("i")
	u.Created(false, "i")
	if got, _ := u.Use("i"); !got.LastUsed.Equal(noon) {
		t.Errorf("a creation that failed is no use: %+v", got)
	}
	u.Begin("docker.io/library/app:1")
	u.Created(true, "docker.io/library/app:1")
	if got, _ := u.Use("i"); !got.LastUsed.Equal(c.t) {
		t.Errorf("a creation by name: %+v", got)
	}
	c.pass(time.Minute)
	u.InUse(map[string]string{"i": "main", "gone": "x"})
	if got, _ := u.Use("i"); !got.LastUsed.Equal(c.t) || !got.FirstSeen.Equal(noon) {
		t.Errorf("a container has it: %+v", got)
	}
	if _, ok := u.Use("gone"); ok {
		t.Error("an image that nobody listed is known")
	}
	u.Listed(nil)
	if _, ok := u.Use("i"); ok {
		t.Error("an image that is gone is known")
	}
}

// An image that was removed and is there again was pulled anew: it is young, however
// long its last use is ago and whoever saw the pull; and pulls are still counted.
func TestRemovedAndListedAgain(t *testing.T) {
	c := newClock()
	u := NewUses(nil, c.now)
	u.Listed(imageOf("i", "app:1"))
	u.Pulled(true, "app:1", "i")
	c.pass(10 * time.Minute)
	u.Removed("i")
	u.Removed("never there")
	u.Pulled(true, "app:1", "i")
	c.pass(time.Minute)
	u.Listed(imageOf("i", "app:1"))
	got, _ := u.Use("i")
	if !got.FirstSeen.Equal(c.t) || !got.LastUsed.Equal(c.t) || len(got.Pulls) != 2 {
		t.Errorf("listed again: %+v", got)
	}
	c.pass(time.Minute)
	u.Listed(imageOf("i", "app:1"))
	if again, _ := u.Use("i"); !again.FirstSeen.Equal(got.FirstSeen) {
		t.Errorf("listed once more: %+v", again)
	}
	if _, ok := u.Use("never there"); ok {
		t.Error("an image that was never there is known")
	}
}

// What was pulled is known by name before any list has it.
func TestPullBeforeItIsListed(t *testing.T) {
	c := newClock()
	u := NewUses(nil, c.now)
	u.Begin("app:1")
	if !u.InFlight([]string{"x", "docker.io/library/app:1"}) || u.InFlight([]string{"docker.io/library/app:2"}) {
		t.Error("the pull under way is not seen by its canonical name")
	}
	u.Pulled(true, "app:1", "i")
	if u.InFlight([]string{"docker.io/library/app:1"}) {
		t.Error("the pull is over")
	}
	pulled := c.t
	c.pass(time.Minute)
	u.Listed(imageOf("i", "docker.io/library/app:1"))
	if got, _ := u.Use("i"); !got.LastPulled.Equal(pulled) || len(got.Pulls) != 1 {
		t.Errorf("%+v", got)
	}
	u.Begin("app:1")
	u.Pulled(true, "app:1", "i")
	if got, _ := u.Use("i"); !got.LastPulled.Equal(c.t) || len(got.Pulls) != 2 {
		t.Errorf("pulled again: %+v", got)
	}
	u.Begin("app:1")
	u.Pulled(false, "app:1", "")
	if got, _ := u.Use("i"); len(got.Pulls) != 2 {
		t.Errorf("a pull that failed: %+v", got)
	}
}

func TestWatched(t *testing.T) {
	c := newClock()
	u := NewUses(nil, c.now)
	c.pass(time.Minute)
	if d, linked := u.Watched(); d != time.Minute || linked {
		t.Errorf("%s %v", d, linked)
	}
	u.Linked()
	u.Begin("a:1")
	c.pass(time.Second)
	if d, linked := u.Watched(); d != time.Second || !linked {
		t.Errorf("%s %v", d, linked)
	}
	u.Linked() // events were lost
	if d, _ := u.Watched(); d != 0 {
		t.Errorf("%s after a loss", d)
	}
	if u.InFlight([]string{"docker.io/library/a:1"}) {
		t.Error("what was under way before is not known any more")
	}
	u.Unlinked()
	if _, linked := u.Watched(); linked {
		t.Error("linked")
	}
}

func TestUseFile(t *testing.T) {
	f := UseFile{Path: filepath.Join(t.TempDir(), "images.json")}
	if all, err := f.Load(); err != nil || len(all) != 0 {
		t.Errorf("without a file: %v, %v", all, err)
	}
	want := map[string]Use{"i": {FirstSeen: noon, LastUsed: noon.Add(time.Hour), LastPulled: noon, Pulls: []time.Time{noon}, Until: noon}, "j": {FirstSeen: noon, LastUsed: noon}}
	// What a kill left of an earlier one.
	if err := os.WriteFile(f.Path+".part", []byte(strings.Repeat("x", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := f.Load()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{"torn": `{"version":1,"images":{"i":{"firstSe`, "later": `{"version":2}`, "empty": ""} {
		if err := os.WriteFile(f.Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := f.Load(); err == nil || all != nil || !strings.Contains(err.Error(), "uses of images") {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
	if err := os.Remove(f.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(f.Path, 0o700); err != nil { // nothing can be renamed over it
		t.Fatal(err)
	}
	if err := f.Save(want); err == nil {
		t.Error("written over a directory")
	}
	left, err := os.ReadDir(filepath.Dir(f.Path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
