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
	for i := range l.entries {
		if l.entries[i].matches(img) {
			return l.entries[i].text, true
		}
	}
	return "", false
}

func (e *allowed) matches(img *Image) bool {
	if e.digest != "" && img.ID == e.digest || e.prefix == "" && e.exact == "" && e.digest == "" {
		return true // the prefix "*" is everything
	}
	for _, name := range img.Names {
		canonical := cri.CanonicalImage(name)
		switch {
		case e.exact != "" && canonical == e.exact,
			e.digest != "" && strings.HasSuffix(name, "@"+e.digest),
			e.prefix != "" && (strings.HasPrefix(canonical, e.prefix) || strings.HasPrefix(cri.FamiliarImage(name), e.prefix) || strings.HasPrefix(name, e.prefix)):
			return true
		}
	}
	return false
}
