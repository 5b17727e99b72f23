package gc

import (
	"errors"
	"strings"

	"github.com/cri-evictd/cri-evictd/cri"
)

// AllowList are images that are never removed.
type AllowList struct{ entries []allowed }

// allowed is one entry, as written and as it is compared.
type allowed struct {
	text   string
	prefix string // of names
	exact  string // canonical name
	digest string // "sha256:…" of the image or of one of its manifests
}

// ErrAllowEntry is an entry that can never match anything.
var ErrAllowEntry = errors.New("must be a reference such as registry.example/app:1, a prefix such as registry.example/base/*, or a digest such as sha256:0123… of 64 digits")

// ParseAllowList reads imageAllowList: references, prefixes that end with "*", and
// digests. bad is the index of the first entry that is none of these, with
// ErrAllowEntry.
func ParseAllowList(texts []string) (list AllowList, bad int, err error) {
	for i, text := range texts {
		e := allowed{text: text}
		switch digest := strings.HasPrefix(text, "sha256:"); {
		case strings.HasSuffix(text, "*") && strings.Count(text, "*") == 1:
			e.prefix = strings.TrimSuffix(text, "*")
		case digest && cri.ImageRepository(text) == "":
			e.digest = text
		case !digest && cri.ImageRepository(text) != "":
			e.exact = cri.CanonicalImage(text)
		default:
			return AllowList{}, i, ErrAllowEntry
		}
		list.entries = append(list.entries, e)
	}
	return list, 0, nil
}

// Match returns the first entry that is about the image.
func (l AllowList) Match(img *Image) (entry string, ok bool) {
	if len(l.entries) == 0 {
		return "", false
	}
	names := make([]spelled, 0, len(img.Names))
	for _, n := range img.Names {
		names = append(names, spelled{n, cri.CanonicalImage(n), cri.FamiliarImage(n)})
	}
	for i := range l.entries {
		if l.entries[i].matches(img.ID, names) {
			return l.entries[i].text, true
		}
	}
	return "", false
}

// spelled is a name in all its forms.
type spelled struct{ text, canonical, familiar string }

func (e *allowed) matches(id string, names []spelled) bool {
	if e.digest != "" && id == e.digest || e.prefix == "" && e.exact == "" && e.digest == "" {
		return true // the prefix "*" is everything
	}
	for _, n := range names {
		switch {
		case e.exact != "" && n.canonical == e.exact,
			e.digest != "" && strings.HasSuffix(n.text, "@"+e.digest),
			e.prefix != "" && (strings.HasPrefix(n.canonical, e.prefix) || strings.HasPrefix(n.familiar, e.prefix) || strings.HasPrefix(n.text, e.prefix)):
			return true
		}
	}
	return false
}
