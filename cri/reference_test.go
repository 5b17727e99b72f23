package cri

import (
	"strings"
	"testing"
)

func TestImageNames(t *testing.T) {
	hash := strings.Repeat("0123456789abcdef", 4)
	for _, c := range []struct{ name, canonical, familiar, repository, registry string }{
		{"app", "docker.io/library/app:latest", "app:latest", "docker.io/library/app", "docker.io"},
		{"app:1", "docker.io/library/app:1", "app:1", "docker.io/library/app", "docker.io"},
		{"docker.io/library/app:1", "docker.io/library/app:1", "app:1", "docker.io/library/app", "docker.io"},
		{"team/app", "docker.io/team/app:latest", "team/app:latest", "docker.io/team/app", "docker.io"},
		{"localhost:5000/app:1", "localhost:5000/app:1", "localhost:5000/app:1", "localhost:5000/app", "localhost:5000"},
		{"registry.example/a/b@sha256:" + hash, "registry.example/a/b@sha256:" + hash, "registry.example/a/b@sha256:" + hash, "registry.example/a/b", "registry.example"},
		{"registry.example/a/b:1@sha256:" + hash, "registry.example/a/b@sha256:" + hash, "registry.example/a/b@sha256:" + hash, "registry.example/a/b", "registry.example"},
		{"sha256:" + hash, "sha256:" + hash, "sha256:" + hash, "", ""},
		{hash, hash, hash, "", ""},
		{"", "", "", "", ""},
		{"Not A Reference", "Not A Reference", "Not A Reference", "", ""},
	} {
		if got := CanonicalImage(c.name); got != c.canonical {
			t.Errorf("CanonicalImage(%q) = %q, want %q", c.name, got, c.canonical)
		}
		if got := FamiliarImage(c.name); got != c.familiar {
			t.Errorf("FamiliarImage(%q) = %q, want %q", c.name, got, c.familiar)
		}
		if got := ImageRepository(c.name); got != c.repository {
			t.Errorf("ImageRepository(%q) = %q, want %q", c.name, got, c.repository)
		}
		if got := ImageRegistry(c.name); got != c.registry {
			t.Errorf("ImageRegistry(%q) = %q, want %q", c.name, got, c.registry)
		}
	}
}
