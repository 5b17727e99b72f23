package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

const (
	guestSource   = "/opt/evictd/src" // the module, for tests that read testdata
	guestPrograms = "/opt/evictd/bin"
)

// testStep is a run of a test binary in a machine.
type testStep struct {
	name    string
	folder  string // of the package, below the module
	flags   []string
	env     []string
	timeout time.Duration
	// noSwap switches the machine's swap space off, for this step and those after.
	noSwap bool
	skips  skipList
}

// testMachine is a machine and what to test in it.
type testMachine struct {
	name         string
	memory, swap int // MiB
	steps        []testStep
}

// slowness is how many times longer things may take in an emulated machine.
const slowness = 6

// quietShort is how long nothing may happen in each test of that; see soak.
const (
	quietShort  = 20 * time.Second
	packedShort = time.Minute
)

// The end-to-end tests in which the machine matters, the hierarchy and the cgroup
// driver: where pods' cgroups are found, killed, and not killed, and with the
// runtime gone. Each once, as an emulated machine takes minutes for what takes
// seconds on the host; `vm test -all` runs all of them with both drivers.
const (
	cgroupfsTests = `^(TestEvictsTheHog|TestContainerdDeadUnderPressure)$/^2\.4$`
	slowTests     = `^(TestWriterIsEvicted|TestInodeEaterIsEvicted|TestVolumeWriterIsNotEvictedForNothing|TestForkBombIsEvicted)$`
	systemdTests  = `^(TestEvictsTheHog|TestKill9BetweenIntentAndKill|TestForeignCgroupParentIsNeverKilledDirectly)$/^(1\.6|[^0-9].*)$`
)

// onAndOffTest leaves a machine as it found it, and comes before those that do not.
const onAndOffTest = "^TestOnAndOff$"

// suite are the machines of `vm test`; all is with every end-to-end test under both
// cgroup drivers.
func suite(all bool) []testMachine {
	cgroupfs, systemd := "-test.run="+cgroupfsTests, "-test.run="+systemdTests
	if all {
		cgroupfs, systemd = "-test.skip=^TestVM", "-test.skip=^TestVM"
	}
	onAndOff := testStep{name: "on and off", folder: unitsFolder, timeout: 15 * time.Minute, env: []string{unitsTmp}, flags: []string{"-test.run=" + onAndOffTest}}
	machines := []testMachine{
		{name: "node", memory: 3072, steps: []testStep{
			{name: "cgroupfs", folder: "cgroupfs", timeout: 5 * time.Minute, skips: pureV2},
			{name: "eviction", folder: "eviction", timeout: 3 * time.Minute, flags: []string{"-test.run=^TestReal"}},
			// Project quotas, which kernels made for containers often lack.
			{name: "diskusage", folder: "eviction/diskusage", timeout: 3 * time.Minute, flags: []string{"-test.run=Ext4|Overlay|RealCgroup"}},
			{name: "e2e, cgroupfs driver", folder: "test/e2e", timeout: 80 * time.Minute, flags: []string{cgroupfs}},
			{name: "e2e, systemd driver", folder: "test/e2e", timeout: 80 * time.Minute, flags: []string{systemd},
				env: []string{"CRI_EVICTD_E2E_CGROUP_DRIVER=systemd"}},
			{name: "disk, inodes, PIDs", folder: "test/e2e", timeout: 40 * time.Minute, flags: []string{"-test.run=" + slowTests},
				env: []string{"CRI_EVICTD_E2E_CGROUP_DRIVER=systemd"}},
		}},
		{name: "small", memory: 1536, swap: 1024, steps: []testStep{
			{name: "exhaustion with swap", folder: "test/e2e", timeout: 10 * time.Minute,
				flags: []string{"-test.run=^TestVMExhaustionFast$"}, env: []string{"CRI_EVICTD_E2E_SWAP=yes"}},
			{name: "exhaustion", folder: "test/e2e", timeout: 10 * time.Minute, noSwap: true,
				flags: []string{"-test.run=^TestVMExhaustion$"}},
			{name: "reclaim", folder: "test/e2e", timeout: 5 * time.Minute, noSwap: true, flags: []string{"-test.run=^TestVMReclaim"}},
			{name: "no needless kill", folder: "test/e2e", timeout: 15 * time.Minute, noSwap: true,
				flags: []string{"-test.run=^TestVMQuiet"}, env: []string{"CRI_EVICTD_E2E_QUIET=" + quietShort.String()}},
			{name: "packed node", folder: "test/e2e", timeout: 10 * time.Minute, noSwap: true,
				flags: []string{"-test.run=^TestVMPacked"}, env: []string{"CRI_EVICTD_E2E_QUIET=" + packedShort.String()}},
		}},
	}
	if all {
		// Twenty minutes of hand-overs, restarts and waiting for watchdogs.
		machines = append(machines, testMachine{name: "units", memory: 2048, steps: []testStep{
			onAndOff,
			{name: "units", folder: unitsFolder, timeout: 45 * time.Minute, env: []string{unitsTmp}, flags: []string{"-test.skip=" + onAndOffTest}},
		}})
	} else {
		small := &machines[len(machines)-1]
		small.steps = append(small.steps, testStep{name: "units", folder: unitsFolder, timeout: 15 * time.Minute, noSwap: true,
			flags: []string{"-test.run=" + unitsTests}, env: []string{unitsTmp, "CRI_EVICTD_UNITS_TIMES=2"}})
	}
	return machines
}

// unitsTests are the parts of a life with the units, without those that repeat or
// wait for minutes.
const unitsTests = `^TestUnits$/^(as_installed|eviction|hand-overs|a_program_that_crashes_at_start|SIGSTOP|bypass_by_hand|disk|off)$`

// unitsTmp: the units' sandboxes see no /var/tmp of the machine's.
const unitsTmp = "TMPDIR=/srv"

// unitsFolder has the tests that need two versions of the program.
const unitsFolder = "test/units"

// soakSuite are the machines of `vm soak`: three, so that an hour of watching takes
// half of one.
func soakSuite(quiet time.Duration) []testMachine {
	soak := func(name, tests string) testMachine {
		return testMachine{name: "soak " + name, memory: 1536, steps: []testStep{
			{name: "no needless kill", folder: "test/e2e", timeout: 3*quiet + 30*time.Minute, flags: []string{"-test.run=" + tests},
				noSwap: true, env: []string{"CRI_EVICTD_E2E_QUIET=" + quiet.String()}},
		}}
	}
	return []testMachine{
		soak("cache", "^TestVMQuiet$/^(page-cache_flood|one_big_read)$"),
		soak("memory", "^TestVMQuiet$/^(tmpfs_that_fits|reclaim_at_the_pod's_own_limit|OOM_at_the_pod's_own_limit)$"),
		soak("packed", "^TestVMPacked"),
	}
}

func testCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "run only the steps whose name, as MACHINE/STEP, matches this regular expression")
	all := flags.Bool("all", false, "every end-to-end test under both cgroup drivers (an hour or two)")
	tests := flags.String("run", "", "of the steps' tests only those that match this, as in go test -run")
	logs := flags.String("logs", "bin/vm", "folder for all output and the machines' logs")
	if err := flags.Parse(args); err != nil {
		return 0, errors.Join(errUsage, err)
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return 0, fmt.Errorf("%w: -only: %w", errUsage, err)
	}
	machines := selectSteps(suite(*all), re)
	if *tests != "" {
		for _, m := range machines {
			for i := range m.steps {
				m.steps[i].flags = []string{"-test.run=" + *tests}
			}
		}
	}
	return runSuite(ctx, machines, *logs, stdout, stderr)
}

func soakCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quiet := flags.Duration("for", 10*time.Minute, "how long each test watches that nothing happens")
	only := flags.String("only", "", "run only the steps whose name, as MACHINE/STEP, matches this regular expression")
	logs := flags.String("logs", "bin/vm", "folder for all output and the machines' logs")
	if err := flags.Parse(args); err != nil {
		return 0, errors.Join(errUsage, err)
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return 0, fmt.Errorf("%w: -only: %w", errUsage, err)
	}
	return runSuite(ctx, selectSteps(soakSuite(*quiet), re), *logs, stdout, stderr)
}

// selectSteps leaves out what does not match.
func selectSteps(all []testMachine, re *regexp.Regexp) []testMachine {
	var out []testMachine
	for _, m := range all {
		var steps []testStep
		for _, s := range m.steps {
			if re.MatchString(m.name + "/" + s.name) {
				steps = append(steps, s)
			}
		}
		if m.steps = steps; len(steps) > 0 {
			out = append(out, m)
		}
	}
	return out
}

func runSuite(ctx context.Context, machines []testMachine, logs string, stdout, stderr io.Writer) (int, error) {
	began := time.Now()
	if len(machines) == 0 {
		return 0, fmt.Errorf("%w: no step has that name", errUsage)
	}
	r, cleanup, err := newRig(ctx, stderr)
	if err != nil {
		return 0, err
	}
	defer cleanup()
	dir, remove, err := lab.NewScratch()
	if err != nil {
		return 0, err
	}
	defer remove()
	programs := share{host: filepath.Join(dir, "programs"), mount: guestPrograms}
	if err := compile(ctx, machines, programs.host); err != nil {
		return 0, err
	}
	if err := collectTools(ctx, stderr, filepath.Join(programs.host, "lab"), withUnits(machines)); err != nil {
		return 0, err
	}
	if programs, err = programs.asDisk(ctx, filepath.Join(dir, "programs.img")); err != nil {
		return 0, err
	}
	fmt.Fprintf(stdout, "vm: image, programs and tests ready after %s\n", seconds(time.Since(began)))
	failed, err := runMachines(ctx, r, machines, programs, logs, stdout)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(stdout, "vm: %d failed, %s in all; everything printed inside is in %s\n", failed, seconds(time.Since(began)), logs)
	if failed > 0 {
		return exitFailed, nil
	}
	return 0, nil
}

// runMachines runs all at once: much of their time is waiting.
func runMachines(ctx context.Context, r *rig, machines []testMachine, programs share, logs string, stdout io.Writer) (failed int, err error) {
	type outcome struct {
		failed int
		err    error
	}
	out := &lines{w: stdout}
	outcomes := make(chan outcome, len(machines))
	for _, m := range machines {
		go func() {
			// qemu ends with the thread that started it; see main.
			runtime.LockOSThread()
			n, err := runMachine(ctx, r, m, programs, logs, out)
			outcomes <- outcome{n, err}
		}()
	}
	for range machines {
		o := <-outcomes
		failed += o.failed
		err = errors.Join(err, o.err)
	}
	return failed, err
}

// runMachine returns how many steps failed.
func runMachine(ctx context.Context, r *rig, m testMachine, programs share, logs string, stdout io.Writer) (int, error) {
	source, err := moduleRoot(ctx)
	if err != nil {
		return 0, err
	}
	spec := machine{
		memory: m.memory, swap: m.swap, cpus: processors(), logs: filepath.Join(logs, fileName(m.name)),
		shares: []share{programs, {host: source, mount: guestSource}},
	}
	for _, s := range m.steps {
		spec.steps = append(spec.steps, s.command())
	}
	began := time.Now()
	w := &testWatcher{machine: m.name, steps: m.steps, logs: spec.logs, out: stdout}
	err = r.run(ctx, spec, w)
	err = errors.Join(err, w.close())
	if err != nil {
		return w.failed, fmt.Errorf("machine %q: %w", m.name, err)
	}
	fmt.Fprintf(stdout, "vm: machine %q: %s\n", m.name, seconds(time.Since(began)))
	return w.failed, nil
}

// command is what the guest is to run.
func (s testStep) command() protocol.Step {
	args := append([]string{
		filepath.Join(guestPrograms, testBinary(s.folder)), "-test.v", "-test.timeout=" + s.timeout.String(),
	}, s.flags...)
	env := append(guestEnv(guestPrograms+"/lab"), "CRI_EVICTD_E2E_BINARIES="+guestPrograms, fmt.Sprintf("CRI_EVICTD_E2E_SLOWNESS=%d", slowness))
	env = append(env, s.env...)
	if s.noSwap {
		args = append([]string{"/bin/sh", "-c", `swapoff -a && exec "$@"`, "sh"}, args...)
		env = append(env, "CRI_EVICTD_E2E_SWAP=no")
	}
	return protocol.Step{Name: s.name, Args: args, Env: env, Dir: filepath.Join(guestSource, s.folder), Timeout: s.timeout + time.Minute}
}

// withUnits says whether the tests of the units are among them.
func withUnits(machines []testMachine) bool {
	return slices.ContainsFunc(machines, func(m testMachine) bool {
		return slices.ContainsFunc(m.steps, func(s testStep) bool { return s.folder == unitsFolder })
	})
}

// compile builds what runs inside; static, as the machine may have another libc.
// There is no race detector without cgo.
func compile(ctx context.Context, machines []testMachine, dir string) error {
	source, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, tags := range []string{"", "evictdfault"} {
		err := lab.RunGo(ctx, source, nil, "build", "-tags", tags, "-ldflags=-s -w", "-o", filepath.Join(dir, "cri-evictd"+tags), "./cmd/cri-evictd")
		if err != nil {
			return err
		}
	}
	if withUnits(machines) {
		for _, v := range []string{"v1", "v2"} {
			err := lab.RunGo(ctx, source, nil, "build", "-ldflags=-s -w -X main.release="+v, "-o", filepath.Join(dir, "cri-evictd"+v), "./cmd/cri-evictd")
			if err != nil {
				return err
			}
		}
	}
	for _, m := range machines {
		for _, s := range m.steps {
			path := filepath.Join(dir, testBinary(s.folder))
			if _, err := os.Stat(path); err == nil {
				continue
			}
			if err := lab.RunGo(ctx, source, nil, "test", "-c", "-ldflags=-s -w", "-o", path, "./"+s.folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// collectTools copies the units of the lab's cache that its tools are in, and
// kubelet's if it is wanted.
func collectTools(ctx context.Context, log io.Writer, to string, kubelet bool) error {
	root, err := lab.CacheRoot()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	var programs []string
	for _, v := range lab.Versions() {
		tools, err := lab.Ensure(ctx, log, v)
		if err != nil {
			return err
		}
		programs = append(programs, tools.Containerd, tools.Shim, tools.Ctr, tools.Runc, tools.Crictl, tools.Workload)
	}
	if kubelet {
		program, err := lab.EnsureKubelet(ctx, log, lab.Kubernetes)
		if err != nil {
			return err
		}
		programs = append(programs, program)
	}
	for _, program := range programs {
		rel, err := filepath.Rel(root, program)
		if err != nil {
			return err
		}
		unit, _, _ := strings.Cut(rel, "/")
		if _, err := os.Stat(filepath.Join(to, unit)); err == nil {
			continue
		}
		if err := quietly(ctx, nil, "cp", "-a", filepath.Join(root, unit), to); err != nil {
			return err
		}
	}
	return nil
}

func testBinary(folder string) string { return filepath.Base(folder) + ".test" }
