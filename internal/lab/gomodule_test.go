package lab

import (
	"encoding/json"
	"testing"
)

func TestModuleWithLocalReplacements(t *testing.T) {
	// As `go mod edit -json` prints it.
	var mod goMod
	err := json.Unmarshal([]byte(`{
		"Module": {"Path": "k8s.io/kubernetes"}, "Go": "1.26.0",
		"Require": [
			{"Path": "k8s.io/api", "Version": "v0.0.0"},
			{"Path": "github.com/spf13/cobra", "Version": "v1.10.0"},
			{"Path": "k8s.io/apimachinery", "Version": "v0.0.0", "Indirect": true}
		],
		"Replace": [
			{"Old": {"Path": "k8s.io/apimachinery"}, "New": {"Path": "./staging/src/k8s.io/apimachinery"}},
			{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
			{"Old": {"Path": "k8s.io/not-required"}, "New": {"Path": "../not-required"}},
			{"Old": {"Path": "example.com/fork"}, "New": {"Path": "example.com/other", "Version": "v1.0.0"}}
		]
	}`), &mod)
	if err != nil {
		t.Fatal(err)
	}
	m, err := kubernetesModule("1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	want := `module build

go 1.26.0

require (
	k8s.io/kubernetes v1.37.2
	k8s.io/api v0.37.2 // indirect
	github.com/spf13/cobra v1.10.0 // indirect
	k8s.io/apimachinery v0.37.2 // indirect
)

replace k8s.io/api => k8s.io/api v0.37.2

replace k8s.io/apimachinery => k8s.io/apimachinery v0.37.2

replace k8s.io/not-required => k8s.io/not-required v0.37.2
`
	if got := m.render(mod); got != want {
		t.Errorf("go.mod is\n%s\nwant\n%s", got, want)
	}
}

func TestKubernetesVersions(t *testing.T) {
	for _, bad := range []string{"", "1.37", "v1.37.2", "2.0.0", "1.37.2.1"} {
		if m, err := kubernetesModule(bad); err == nil {
			t.Errorf("%q was taken for %+v", bad, m)
		}
	}
}
