package cgroupfs

import (
	"strings"
	"testing"
)

func TestResolveParent(t *testing.T) {
	for in, want := range map[string]string{
		"/kubepods/burstable/podX":                  "/kubepods/burstable/podX",
		"/kubepods/burstable//podX/":                "/kubepods/burstable/podX",
		"/kubepods":                                 "/kubepods",
		"/kubepods/../../etc":                       "/etc",
		"kubepods-burstable-pod" + under + ".slice": systemdBurstable,
		"kubepods-pod" + under + ".slice":           "/kubepods.slice/kubepods-pod" + under + ".slice",
		"kubepods.slice":                            "/kubepods.slice",
		systemdBurstable:                            systemdBurstable,
		"/kubepods-burstable-podX.slice":            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice",
		"/elsewhere/kubepods.slice":                 "/kubepods.slice",
	} {
		if got, err := ResolveParent(in); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestResolveParentRefuses(t *testing.T) {
	for _, in := range []string{
		"", "/", ".", "..", "/..", "kubepods/podX", "../kubepods", "-.slice", ".slice", "kubepods--x.slice", "-x.slice",
		"/kubepods/a\x00b", "/" + strings.Repeat("a", 5000),
	} {
		got, err := ResolveParent(in)
		if err == nil {
			t.Errorf("%.40q became %q", in, got)
			continue
		}
		if len(err.Error()) > 1000 {
			t.Errorf("%.40q: an error of %d bytes", in, len(err.Error()))
		}
	}
}
