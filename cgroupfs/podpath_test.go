package cgroupfs

import (
	"strings"
	"testing"
)

const dashed = "11111111-2222-3333-4444-555555555555"
const under = "11111111_2222_3333_4444_555555555555"

// B31: Guaranteed pods sit directly below kubepods, with both drivers, and
// static pods have UIDs without dashes.
func TestB31GuaranteedPods(t *testing.T) {
	for _, tc := range []struct {
		path, uid string
		driver    Driver
	}{
		{"/kubepods.slice/kubepods-pod" + under + ".slice", dashed, Systemd},
		{"/kubepods/pod" + dashed, dashed, Cgroupfs},
		{"/kubepods/pod0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef", Cgroupfs},
		{"/kubepods.slice/kubepods-pod0123456789abcdef0123456789abcdef.slice", "0123456789abcdef0123456789abcdef", Systemd},
	} {
		got, ok := ParsePodPath(tc.path)
		if want := (PodPath{tc.path, tc.uid, Guaranteed, tc.driver}); !ok || got != want {
			t.Errorf("%s: %+v %v, want %+v", tc.path, got, ok, want)
		}
	}
	for _, p := range []string{"/kubepods/guaranteed/pod" + dashed, "/kubepods.slice/kubepods-guaranteed.slice/kubepods-guaranteed-pod" + under + ".slice"} {
		if got, ok := ParsePodPath(p); ok {
			t.Errorf("%s: %+v, there is no guaranteed level", p, got)
		}
	}
}

func TestParsePodPath(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want PodPath
	}{
		{cgroupfsBurstable, PodPath{cgroupfsBurstable, dashed, Burstable, Cgroupfs}},
		{cgroupfsBestEffort, PodPath{cgroupfsBestEffort, "hog.test-1", BestEffort, Cgroupfs}},
		{systemdBurstable, PodPath{systemdBurstable, dashed, Burstable, Systemd}},
		{systemdBestEffort, PodPath{systemdBestEffort, "hog.test-1", BestEffort, Systemd}},
		{"/kubepods/burstable//pod" + dashed + "/", PodPath{cgroupfsBurstable, dashed, Burstable, Cgroupfs}},
		{"/x/../kubepods/burstable/pod" + dashed, PodPath{cgroupfsBurstable, dashed, Burstable, Cgroupfs}},
		{"/outer/kubepods/podX", PodPath{"/outer/kubepods/podX", "X", Guaranteed, Cgroupfs}},
		{"/a/b/c/kubepods/besteffort/podX", PodPath{"/a/b/c/kubepods/besteffort/podX", "X", BestEffort, Cgroupfs}},
		{
			"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-podX.slice",
			PodPath{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-podX.slice", "X", Burstable, Systemd},
		},
		{"/docker/kubepods.slice/kubepods-podX.slice", PodPath{"/docker/kubepods.slice/kubepods-podX.slice", "X", Guaranteed, Systemd}},
	} {
		if got, ok := ParsePodPath(tc.in); !ok || got != tc.want {
			t.Errorf("%s: %+v %v, want %+v", tc.in, got, ok, tc.want)
		}
	}
}

func TestParsePodPathRefuses(t *testing.T) {
	for _, in := range []string{
		"", "/", ".", "pod" + dashed, "kubepods/pod" + dashed,
		"/kubepods", "/kubepods/burstable", "/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice",
		"/pod" + dashed,
		"/kubepods/pod", "/kubepods/pod-", "/kubepods/pod..", "/kubepods/poda b", "/kubepods/poda_b", "/kubepods/podé", "/kubepods/poda\nb",
		"/kubepods/xpod" + dashed,
		// a container, not its pod
		"/kubepods/burstable/pod" + dashed + "/0123456789ab",
		"/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-0123.scope",
		// a level that is not below kubepods
		"/burstable/pod" + dashed, "/other/burstable/pod" + dashed, "/kubepodsx/pod" + dashed,
		"/kubepods/burstable/burstable/pod" + dashed, "/kubepods/other/pod" + dashed, "/kubepods/burstable/besteffort/pod" + dashed,
		// names of one driver below those of the other
		"/kubepods.slice/pod" + dashed, "/kubepods/kubepods-pod" + under + ".slice", "/kubepods/burstable/kubepods-burstable-podX.slice",
		// slices below a parent that is not theirs
		"/kubepods-podX.slice", "/kubepods.slice/kubepods-burstable-podX.slice",
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-burstable-podX.slice",
		"/kubepods-burstable.slice/kubepods-burstable-podX.slice",
		"/system.slice/system-podX.slice", "/mykubepods.slice/mykubepods-podX.slice",
		"/kubepods.slice/kubepods-pod.slice", "/kubepods.slice/kubepods-pod_.slice", "/kubepods.slice/kubepods--podX.slice",
		"/kubepods.slice/kubepods-podX.scope", "/kubepods.slice/podX.slice",
		// unescaped dashes make another chain of slices
		"/kubepods.slice/kubepods-pod" + dashed + ".slice",
		// a cluster run inside a pod has pods, but not of this node
		cgroupfsBurstable + "/c/kubepods/burstable/podY",
		cgroupfsBurstable + "/kubepods/podY",
		systemdBurstable + "/kubepods.slice/kubepods-podY.slice",
		"/" + strings.Repeat("a/", 2100) + "kubepods/podX",
	} {
		if got, ok := ParsePodPath(in); ok {
			t.Errorf("%.100q taken for %+v", in, got)
		}
	}
}

func TestQoSAndDriverNames(t *testing.T) {
	for q, want := range map[QoS]string{Guaranteed: "Guaranteed", Burstable: "Burstable", BestEffort: "BestEffort", 7: "QoS(7)"} {
		if q.String() != want {
			t.Errorf("%q, want %q", q.String(), want)
		}
	}
	if Cgroupfs.String() != "cgroupfs" || Systemd.String() != "systemd" {
		t.Errorf("%q, %q", Cgroupfs, Systemd)
	}
}
