package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/cri-evictd/cri-evictd/eviction"
)

// Of kubelet's disk: its size, what has to stay free, and what a pod writes.
const (
	diskSize      = 1024 * mi
	diskThreshold = 500 * mi
	diskFilling   = 700 * mi
)

// ofDisk is the end of a pod that filled kubelet's disk.
var ofDisk = ending{resource: "ephemeral-storage", exit: 137}

// ownDisk puts kubelet's folder on an ext4 file system of its own, an image file in
// the scratch folder, with whose removal it goes.
func ownDisk(t *testing.T, scratch string) {
	t.Helper()
	image, dir := filepath.Join(scratch, "disk.img"), filepath.Join(scratch, "kl")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(diskSize), f.Close(), os.Mkdir(dir, 0o711))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
}

// diskPolicy are lines of evictionHard.
func diskPolicy(threshold uint64) string {
	return fmt.Sprintf("  nodefs.available: %q\n  nodefs.inodesFree: \"0%%\"\n", quantity(threshold))
}

func (s *stage) freeOnDisk() (uint64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(s.kubelet.RootDir, &st)
	return st.Bavail * uint64(st.Bsize), err
}

func (s *stage) diskFree() uint64 {
	s.t.Helper()
	free, err := s.freeOnDisk()
	if err != nil {
		s.t.Fatal(err)
	}
	return free
}

// awaitDisk returns when as much of the disk is free as it should be.
func (s *stage) awaitDisk(what string, is func(free uint64) bool) {
	s.t.Helper()
	eventually(s.t, "the disk "+what, time.Minute, func() error {
		if free := s.diskFree(); !is(free) {
			return fmt.Errorf("%d MiB are free", free/mi)
		}
		return nil
	})
}

// filling writes into an emptyDir until most of the disk is full.
func filling(name string) *v1.Pod {
	c := asking(workload("main", "write", "--ignore-term", "--dir", "/data", "--total", mebi(diskFilling), "--rate", "300Mi"), 64*mi)
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod := podOf(name, v1.RestartPolicyAlways, c)
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	return pod
}

// Stopping a pod frees nothing of an emptyDir: kubelet does, once it knows that the
// pod has ended. That it is told makes the volume count as what the pod would free.
func volumeIsGivenBack(s *stage) {
	s.awaitDisk("is free again", func(free uint64) bool { return free >= diskThreshold })
	log := s.logSize()
	s.evictor(policy{disk: diskPolicy(diskThreshold)})
	pod := s.create(filling("filling"))
	s.awaitDisk("fills", func(free uint64) bool { return free < diskThreshold })
	crossed := time.Now()
	s.awaitEvicted(pod, ofDisk)
	s.t.Logf("Failed %v after the threshold was crossed", s.pods.of(pod.UID).firstFailed().Sub(crossed).Round(time.Millisecond))
	s.awaitDisk("is free again", func(free uint64) bool { return free >= diskThreshold })
	s.t.Logf("the space is back %v after the threshold was crossed", time.Since(crossed).Round(time.Millisecond))
	s.audit(pod, ofDisk, log)
	s.mustBeUntouched()
	x, err := s.client().Explain(s.t.Context(), "default/filling")
	if err != nil || len(x.Decisions) == 0 {
		s.t.Fatalf("explain: %v, %s", err, jsonText(x.Decisions))
	}
	freed := func(c eviction.CandidateReport) bool {
		return c.UID == string(pod.UID) && c.Gain > mi && c.Deletion == c.Gain
	}
	// Its layers and logs are a few KiB: what counts is the volume, as far as it had
	// been seen when it was still filling.
	if !slices.ContainsFunc(x.Decisions, func(d eviction.Report) bool {
		return d.Victim != nil && slices.ContainsFunc(d.Candidates, freed)
	}) {
		s.t.Errorf("its volume was not what it was to free: %s", jsonText(x.Decisions))
	}
}
