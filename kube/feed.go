package kube

import (
	"errors"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/inventory"
)

// ErrAbsent is for Feed.Fail: this node does not have the source, which is no
// fault.
var ErrAbsent = errors.New("not offered here")

// Feed is what one source knows. Its methods may be called from any goroutine.
type Feed struct {
	store  *Store
	source inventory.Source

	// guarded by store.mu
	pods    map[string]entry // by key
	deleted map[string]time.Time
	state   FeedState
	failing time.Time // since when it fails; zero while it does not
}

// entry is a record with when it was told outside of a list.
type entry struct {
	Record
	told time.Time
}

// FeedState says how current a source is.
type FeedState struct {
	Source inventory.Source `json:"source"`
	// OK: it answered last time. Absent: this node does not have it.
	OK     bool `json:"ok"`
	Absent bool `json:"absent,omitempty"`
	// At is when it was last known to be current; zero for never.
	At    time.Time `json:"at,omitzero"`
	Pods  int       `json:"pods"`
	Error string    `json:"error,omitempty"`
}

// Record takes from a pod what is to be kept of it.
func (f *Feed) Record(pod *v1.Pod) Record {
	return NewRecord(pod, f.source, f.store.keepsLabels(pod.Namespace))
}

// Replace takes a complete list that was asked for at the given time. What was
// told by Put or Delete since then is newer and stays.
func (f *Feed) Replace(records []Record, asked time.Time) {
	f.store.change(func(now time.Time) bool {
		pods := make(map[string]entry, len(records))
		for _, r := range records {
			if f.deleted[r.Key()].After(asked) {
				continue
			}
			pods[r.Key()] = entry{Record: r}
		}
		for key, old := range f.pods {
			if old.told.After(asked) {
				pods[key] = old
			}
		}
		changed := len(pods) != len(f.pods)
		for key, p := range pods {
			old, known := f.pods[key]
			changed = changed || !known || !same(&old.Record, &p.Record)
		}
		if f.source == inventory.FromPodsAPI {
			f.store.concludeGone(f.deleted, pods, asked, now)
		} else {
			// The list has it by now.
			maps.DeleteFunc(f.deleted, func(_ string, at time.Time) bool { return !at.After(asked) })
		}
		f.pods = pods
		return f.current(now) || changed
	})
}

// Put takes one pod that is new or changed.
func (f *Feed) Put(r Record) {
	f.store.change(func(now time.Time) bool {
		old, known := f.pods[r.Key()]
		f.pods[r.Key()] = entry{Record: r, told: now}
		delete(f.deleted, r.Key())
		delete(f.store.gone, r.UID)
		changed := f.current(now)
		return changed || !known || !same(&old.Record, &r)
	})
}

// Delete takes note that the source dropped the pod with this Record.Key.
func (f *Feed) Delete(key string) {
	f.store.change(func(now time.Time) bool {
		_, known := f.pods[key]
		delete(f.pods, key)
		if len(f.deleted) < remembered {
			f.deleted[key] = now
		}
		return f.current(now) || known
	})
}

// Alive says that nothing changed up to now.
func (f *Feed) Alive() {
	f.store.change(func(now time.Time) bool { return f.current(now) })
}

// Fail says that the source cannot be read; with ErrAbsent that this node does
// not have it. What it told before stays, and ages. It reports whether that is
// news.
func (f *Feed) Fail(err error) (news bool) {
	f.store.change(func(now time.Time) bool {
		absent := errors.Is(err, ErrAbsent)
		news = f.state.OK || f.state.Error == "" || f.state.Absent != absent
		f.state.OK, f.state.Absent, f.state.Error = false, absent, err.Error()
		if f.failing.IsZero() {
			f.failing = now
		}
		return news
	})
	return news
}

// current notes that the source answered; true when it had not before.
func (f *Feed) current(now time.Time) bool {
	news := !f.state.OK
	f.state.OK, f.state.Absent, f.state.Error, f.state.At = true, false, "", now
	f.failing = time.Time{}
	return news
}

// State returns how current the source is.
func (f *Feed) State() FeedState {
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	s := f.state
	s.Pods = len(f.pods)
	return s
}

// UIDs returns those of the pods the source knows, in no order.
func (f *Feed) UIDs() []string {
	f.store.mu.RLock()
	defer f.store.mu.RUnlock()
	out := make([]string, 0, len(f.pods))
	for _, p := range f.pods {
		out = append(out, p.UID)
	}
	return out
}
