package units

import (
	"os"
	"strings"
	"time"
)

const stateDir = "/var/lib/cri-evictd"

// withStateOn puts the state directory on a small file system of its own.
func (m *machine) withStateOn(image string) (undo func()) {
	m.t.Helper()
	m.run("systemctl", "stop", unitEv)
	m.run("dd", "if=/dev/zero", "of="+image, "bs=1M", "count=16")
	m.run("mke2fs", "-q", "-F", "-t", "ext4", image)
	must(m.t, os.MkdirAll(stateDir, 0o700))
	m.run("mount", "-o", "loop", image, stateDir)
	m.run("systemctl", "start", unitEv)
	return func() {
		m.run("systemctl", "stop", unitEv)
		m.run("umount", stateDir)
		m.run("systemctl", "start", unitEv)
	}
}

// same fails if the evictor was restarted meanwhile, or calls do not flow.
func (m *machine) same(what string, pid int) {
	m.t.Helper()
	if now := m.pid(unitEv); now != pid {
		m.t.Errorf("%s: the evictor was restarted: %d, was %d", what, now, pid)
	}
	if !m.answered() {
		m.t.Errorf("%s: calls do not flow", what)
	}
	out, _ := m.try(program, "status")
	if !strings.Contains(out, "samples:") {
		m.t.Errorf("%s: status says\n%s", what, out)
	}
}

// Whatever happens to the state directory, nobody is restarted and calls flow.
func disk(m *machine) {
	t := m.t
	defer m.withStateOn("/var/tmp/state.img")()
	pid := m.pid(unitEv)
	const watch = 12 * time.Second // more than two watchdog limits

	m.run("fsfreeze", "-f", stateDir)
	m.change()
	time.Sleep(watch)
	m.same("a hung disk", pid)
	m.run("fsfreeze", "-u", stateDir)

	_, _ = m.try("dd", "if=/dev/zero", "of="+stateDir+"/full", "bs=1M") // until there is no room
	m.change()
	m.same("a full disk", pid)
	must(t, os.Remove(stateDir+"/full"))

	m.run("systemctl", "stop", unitEv)
	must(t, os.WriteFile(stateDir+"/ledger.db", []byte(strings.Repeat("not a ledger ", 4096)), 0o600))
	m.run("systemctl", "start", unitEv)
	m.same("a corrupt ledger", m.pid(unitEv))

	// A disk that hangs at the start: the evictor works without it.
	m.run("systemctl", "stop", unitEv)
	m.run("fsfreeze", "-f", stateDir)
	m.run("systemctl", "start", unitEv)
	pid = m.pid(unitEv)
	time.Sleep(watch)
	m.same("a disk that hangs from the start on", pid)
	m.run("fsfreeze", "-u", stateDir)
}

// change makes something to be written to the ledger.
func (m *machine) change() {
	m.t.Helper()
	_, _ = m.try(program, "holds", "release", "--all") // there may be none
	m.run("systemctl", "reload", unitEv)
}

// A clock that jumps restarts and evicts nobody.
func clock(m *machine) {
	t := m.t
	proxy, evictor := m.pid(unitProx), m.pid(unitEv)
	holds := m.run(program, "holds", "list", "-o", "json")
	for _, jump := range []string{"+1 hour", "-2 hours", "+1 hour"} {
		m.run("date", "-s", jump)
		time.Sleep(8 * time.Second)
		m.same("clock "+jump, evictor)
		if m.pid(unitProx) != proxy {
			t.Errorf("%s: the proxy was restarted", jump)
		}
	}
	if now := m.run(program, "holds", "list", "-o", "json"); strings.Count(now, `"id"`) > strings.Count(holds, `"id"`) {
		t.Errorf("somebody was evicted:\n%s", now)
	}
}
