package units

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

var dialer net.Dialer

// TestUnits goes through one life of an installation; each part leaves things as it
// found them.
func TestUnits(t *testing.T) {
	m := newMachine(t)
	m.install()
	t.Cleanup(func() {
		out, _ := m.try("systemctl", "status", "--no-pager", "--lines=0", "cri-evictd*")
		t.Log(out)
	})
	m.run("systemctl", "enable", "--now", "cri-evictd.socket", unitProx, unitEv)
	m.eventually("calls are answered", 10*time.Second*m.slow, m.answered)
	uid := lab.NewUID()
	var err error
	m.pod, err = lab.RunPod(t.Context(), runtimeapi.NewRuntimeServiceClient(m.dial(socket)), lab.PodSpec{
		Namespace: "default", Name: "steady", UID: uid, CgroupParent: lab.QoSParent("Guaranteed", uid),
		Containers: []lab.ContainerSpec{{Name: "main", Args: []string{"beat"}, OOMScoreAdj: -997, MemoryLimit: 64 << 20}},
	})
	must(t, err)
	for _, part := range []struct {
		name string
		run  func(*machine)
	}{
		{"as installed", asInstalled},
		{"eviction", evicts},
		{"hand-overs", handOvers},
		{"a program that crashes at start", crashAtStart},
		{"the new generation is killed", newGenerationKilled},
		{"restarts", restarts},
		{"kill -9", kills},
		{"SIGSTOP", stopped},
		{"bypass by hand", bypassByHand},
		{"crash loop", crashLoop},
		{"disk", disk},
		{"clock", clock},
		{"off", off},
	} {
		t.Run(part.name, func(t *testing.T) {
			old := m.t
			m.t = t
			defer func() {
				m.t = old
				if t.Failed() {
					out, _ := m.try("journalctl", "-b", "--no-pager", "-o", "short-precise", "-n", "60", "-u", "cri-evictd*", "-u", "init.scope")
					t.Log(out)
				}
			}()
			part.run(m)
		})
	}
	status, err := m.runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: m.pod.ContainerIDs[0]})
	if err != nil || status.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("the pod from the beginning: %v, %v", status.GetStatus().GetState(), err)
	}
}

func asInstalled(m *machine) {
	t := m.t
	if out, err := m.try("systemd-analyze", "verify", "--man=no", unitDir+"/cri-evictd.socket", unitDir+"/"+unitProx, unitDir+"/"+unitEv, unitDir+"/"+unitBy); err != nil || out != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	for _, unit := range []string{unitProx, unitEv, unitBy} {
		out := strings.Split(m.run("systemd-analyze", "security", "--no-pager", unit), "\n")
		t.Log(out[len(out)-1])
	}
	for _, dir := range []string{"cri.slice", "cri.slice/cri-evictd.slice"} {
		b, err := os.ReadFile("/sys/fs/cgroup/" + dir + "/memory.min")
		if err != nil || strings.TrimSpace(string(b)) != strconv.Itoa(128<<20) {
			t.Errorf("memory.min of %s: %q, %v", dir, b, err)
		}
	}
	for _, unit := range []string{unitProx, unitEv} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", m.pid(unit)))
		if err != nil || strings.TrimSpace(string(b)) != "-999" {
			t.Errorf("oom_score_adj of %s: %q, %v", unit, b, err)
		}
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid(unitProx)))
	if err != nil || !strings.Contains(string(b), "CapEff:\t0000000000000000") {
		t.Errorf("the proxy's capabilities: %v\n%s", err, b)
	}
	for _, s := range []string{socket, "/run/cri-evictd/proxy.sock", "/run/cri-evictd/admin.sock"} {
		if fi, err := os.Stat(s); err != nil || fi.Mode().Perm() != 0o660 {
			t.Errorf("%s: %v, %v", s, fi, err)
		}
	}
	// The sandbox takes nothing that the evictor needs.
	out, _ := m.try(program, "status")
	t.Log(out)
	if strings.Contains(out, "degraded:") {
		t.Error("the evictor has less than it asked for")
	}
	// A reload is the configuration's, without a new process.
	before := m.pid(unitProx)
	m.run("systemctl", "reload", unitProx, unitEv)
	if after := m.pid(unitProx); after != before {
		t.Errorf("a reload made %d of %d", after, before)
	}
}

// The evictor kills out of its sandbox, and the proxy holds out of its own.
func evicts(m *machine) {
	t := m.t
	available := meminfo(t, "MemAvailable")
	m.configure(fmt.Sprintf("evictionHard:\n  memory.available: %dKi\nevictionPressureTransitionPeriod: 1s\n", available-300<<10))
	m.run("systemctl", "reload", unitEv)
	time.Sleep(3 * time.Second) // seen clear once
	uid := lab.NewUID()
	rt := runtimeapi.NewRuntimeServiceClient(m.dial(socket))
	spec := lab.PodSpec{
		Namespace: "default", Name: "hog", UID: uid, CgroupParent: lab.QoSParent("BestEffort", uid),
		Containers: []lab.ContainerSpec{{Name: "main", Args: []string{"alloc", "--total", "700Mi", "--rate", "100Mi"}, OOMScoreAdj: 1000}},
	}
	_, err := lab.RunPod(t.Context(), rt, spec)
	must(t, err)
	m.eventually("the hog is evicted", time.Minute*m.slow, func() bool {
		out, _ := m.try(program, "explain", "default/hog")
		return strings.Contains(out, "evicted")
	})
	out, _ := m.try(program, "explain", "default/hog")
	t.Log(out)
	m.configure("")
	m.run("systemctl", "reload", unitEv)
	_, _ = m.try(program, "holds", "release", "default/hog") // it may be let go by itself
}

func meminfo(t *testing.T, key string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/meminfo")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			must(t, err)
			return n
		}
	}
	t.Fatalf("no %s", key)
	return 0
}

// times is how often something is repeated: n, or what the environment says.
func times(t *testing.T, n int) int {
	if v := os.Getenv("CRI_EVICTD_UNITS_TIMES"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		must(t, err)
	}
	return n
}

func handOvers(m *machine) {
	t := m.t
	l, pulls := m.load(), m.puller()
	n := times(t, 20)
	for i := range n {
		version := []string{"v2", "v1"}[i%2]
		m.program(version)
		before, beforeEv := m.pid(unitProx), m.pid(unitEv)
		pulled := pulls.begin(m.handedOver(before))
		out := m.run(program, "upgrade")
		if i == 0 {
			t.Log(out)
		}
		if p, e := m.pid(unitProx), m.pid(unitEv); p == before || e == beforeEv || !m.active(unitProx) || !m.active(unitEv) {
			t.Fatalf("hand-over %d: proxy %d then %d, evictor %d then %d: %s", i, before, p, beforeEv, e, out)
		}
		pulled()
	}
	t.Logf("%d images were being pulled meanwhile, and were", pulls.pulled)
	if r := l.end(); len(r.failed) > 0 || len(r.connects) > 0 {
		t.Errorf("%d hand-overs: %d calls and %d connects failed", n, len(r.failed), len(r.connects))
	}
	if got := m.property(unitProx, "NRestarts"); got != "0" {
		t.Errorf("systemd restarted the proxy %s times", got)
	}
}

func crashAtStart(m *machine) {
	t := m.t
	l := m.load()
	before, beforeEv := m.pid(unitProx), m.pid(unitEv)
	command := program + ".v1"
	b, err := os.ReadFile(program)
	must(t, err, os.WriteFile(command, b, 0o755))
	m.file([]byte("#!/bin/sh\nexit 3\n"))
	out, err := m.try(command, "upgrade")
	m.program("v1")
	t.Log(out)
	if err == nil || m.pid(unitProx) != before || m.pid(unitEv) != beforeEv {
		t.Errorf("%v: proxy %d, was %d", err, m.pid(unitProx), before)
	}
	if r := l.end(); len(r.failed) > 0 {
		t.Errorf("%d calls failed", len(r.failed))
	}
}

// The process that took over dies while the old one, its parent, still drains.
func newGenerationKilled(m *machine) {
	t := m.t
	l := m.load() // a stream keeps the old one
	m.run(program, "upgrade")
	m.signal(unitProx, syscall.SIGKILL)
	took := m.eventually("a new start", 10*time.Second*m.slow, func() bool { return m.active(unitProx) && m.answered() })
	t.Logf("answers again after %s", took)
	if r := l.end(); len(r.connects) > 0 {
		t.Errorf("connects failed: %v", r.connects[0])
	}
}

// bound is a second of a real machine.
func (m *machine) bound() time.Duration { return time.Second * m.slow }

func restarts(m *machine) {
	t := m.t
	l := m.load()
	n := times(t, 10)
	for range n {
		m.run("systemctl", "restart", unitProx)
	}
	r := l.end()
	if len(r.connects) > 0 {
		t.Errorf("connects failed: %v", r.connects[0])
	}
	// The commands in the pod take seconds, so that each restart waits for one.
	if limit := m.bound() + 4*time.Second; r.withoutAnAnswer > limit {
		t.Errorf("%s without an answer", r.withoutAnAnswer)
	}
}

// withoutBypass keeps failures on purpose from starting it.
func (m *machine) withoutBypass() (undo func()) {
	m.t.Helper()
	dir := unitDir + "/" + unitProx + ".d"
	must(m.t, os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/test.conf", []byte("[Service]\nEnvironment=CRI_EVICTD_BYPASS_AFTER=0\n"), 0o644))
	m.run("systemctl", "daemon-reload")
	return func() {
		// They were counted all the same.
		must(m.t, os.RemoveAll(dir), os.RemoveAll("/run/cri-evictd/failures"))
		m.run("systemctl", "daemon-reload")
	}
}

func kills(m *machine) {
	t := m.t
	defer m.withoutBypass()()
	m.run("systemctl", "restart", unitProx)
	l := m.load()
	n := times(t, 10)
	for range n {
		before := m.signal(unitProx, syscall.SIGKILL)
		m.eventually("a new start", 10*time.Second*m.slow, func() bool { return m.pid(unitProx) != before && m.active(unitProx) })
		m.signal(unitEv, syscall.SIGKILL)
	}
	m.eventually("the evictor is back", 10*time.Second*m.slow, func() bool { _, err := m.try(program, "holds", "list"); return err == nil })
	r := l.end()
	if len(r.connects) > 0 {
		t.Errorf("connects failed: %v", r.connects[0])
	}
	if r.withoutAnAnswer > m.bound() {
		t.Errorf("%s without an answer", r.withoutAnAnswer)
	}
	if m.active(unitBy) {
		t.Error("the bypass was started")
	}
}

func stopped(m *machine) {
	for _, unit := range []string{unitProx, unitEv} {
		before := m.signal(unit, syscall.SIGSTOP)
		took := m.eventually("the watchdog ends it", 10*time.Second+m.bound(), func() bool { return m.pid(unit) != before && m.active(unit) })
		m.t.Logf("%s: another process after %s", unit, took)
	}
	m.eventually("calls are answered", 10*time.Second*m.slow, m.answered)
}

func bypassByHand(m *machine) {
	t := m.t
	m.run(program, "bypass", "on")
	if !m.active(unitBy) || m.active(unitProx) || !m.answered() {
		t.Errorf("bypass %t, proxy %t", m.active(unitBy), m.active(unitProx))
	}
	if out, err := m.try(program, "bypass"); err == nil || !strings.Contains(out, "by hand") {
		t.Errorf("%v: %s", err, out)
	}
	out, _ := m.try(program, "status")
	if !strings.Contains(out, "bypass") {
		t.Errorf("status does not say so:\n%s", out)
	}
	// Neither a restart of the evictor nor a new connection ends it.
	m.run("systemctl", "restart", unitEv)
	if out := m.run(program, "bypass", "off", "--when-well"); !strings.Contains(out, "by hand") {
		t.Errorf("%s", out)
	}
	if !m.answered() || !m.active(unitBy) || m.active(unitProx) {
		t.Errorf("afterwards: bypass %t, proxy %t", m.active(unitBy), m.active(unitProx))
	}
	m.run(program, "bypass", "off")
	if m.active(unitBy) || !m.active(unitProx) || !m.answered() {
		t.Errorf("off: bypass %t, proxy %t", m.active(unitBy), m.active(unitProx))
	}
}

func crashLoop(m *machine) {
	t := m.t
	m.file([]byte("#!/bin/sh\nexit 3\n"))
	m.signal(unitProx, syscall.SIGKILL)
	took := m.eventually("the bypass takes over", 20*time.Second*m.slow, func() bool { return m.active(unitBy) && m.answered() })
	t.Logf("the bypass carries calls after %s", took)
	l := m.load()
	time.Sleep(35 * time.Second) // one look of the hand-back
	if r := l.end(); len(r.failed) > 0 || !m.active(unitBy) {
		t.Errorf("%d calls failed in the bypass", len(r.failed))
	}
	m.program("v1")
	took = m.eventually("calls are handed back", 5*time.Minute, func() bool { return m.active(unitProx) })
	t.Logf("handed back after %s", took)
	m.eventually("calls are answered", 10*time.Second*m.slow, m.answered)
	if m.active(unitBy) {
		t.Error("the bypass is still there")
	}
}

func off(m *machine) {
	t := m.t
	m.run("systemctl", "disable", "--now", unitEv, unitProx, "cri-evictd.socket")
	if m.answered() {
		t.Error("somebody answers")
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there")
	}
}
