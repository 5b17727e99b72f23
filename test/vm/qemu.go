package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// qemuSuite is where qemu comes from if the host's Debian is older. With several
// processors the emulation of QEMU before 8.1 lets a guest die at boot now and
// then, and starts processes several times slower.
const qemuSuite = "trixie"

// qemu is a qemu that can be run.
type qemu struct {
	command []string
	env     []string
	accel   string // "kvm" or "tcg"
}

// ensureQEMU returns Debian's qemu: trixie's, unpacked into the cache with all its
// libraries and run through its own loader, so that the host's do not matter; else
// the host's package, which is then installed.
func ensureQEMU(ctx context.Context, log io.Writer) (*qemu, error) {
	dir, err := lab.Cached(ctx, log, "vm-qemu-"+qemuSuite+"-1", []string{"usr/bin/qemu-system-x86_64"}, func(ctx context.Context, dir string) error {
		return unpackQEMU(ctx, log, dir)
	})
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		fmt.Fprintf(log, "vm: no qemu from %s, taking the host's: %v\n", qemuSuite, err)
		if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
			if err := aptInstall(ctx, log, "qemu-system-x86"); err != nil {
				return nil, err
			}
		}
		return &qemu{command: []string{"qemu-system-x86_64"}}, nil
	}
	usr := filepath.Join(dir, "usr")
	libs := filepath.Join(usr, "lib/x86_64-linux-gnu")
	return &qemu{
		command: []string{
			filepath.Join(usr, "lib64/ld-linux-x86-64.so.2"), "--library-path", libs, filepath.Join(usr, "bin/qemu-system-x86_64"),
			"-L", filepath.Join(usr, "share/qemu"), "-L", filepath.Join(usr, "share/seabios"),
		},
		env: []string{"QEMU_MODULE_DIR=" + filepath.Join(libs, "qemu")},
	}, nil
}

func unpackQEMU(ctx context.Context, log io.Writer, dir string) error {
	if err := hostTools(ctx, log); err != nil {
		return err
	}
	host, err := codename()
	if err != nil {
		return err
	}
	source, err := aptSource(qemuSuite, host)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "vm: unpacking qemu of %s\n", qemuSuite)
	part := filepath.Join(dir, "root")
	if err := debootstrap(ctx, part, qemuSuite, source, false, []string{"qemu-system-x86"}); err != nil {
		return err
	}
	// Only what is needed, and where the cache looks for it.
	if err := os.Rename(filepath.Join(part, "usr"), filepath.Join(dir, "usr")); err != nil {
		return err
	}
	return os.RemoveAll(part)
}

// probeLimit is what a machine may take that only boots its initramfs: a second
// with working virtualisation.
const probeLimit = 6 * time.Second

// chooseAccel uses KVM where a machine really boots with it. That /dev/kvm opens
// proves nothing: nested below some hypervisors qemu aborts, or the guest runs far
// slower than emulated. The answer is kept until the host boots again.
func (q *qemu) chooseAccel(ctx context.Context, log io.Writer, img image, cacheDir string) error {
	q.accel = "tcg"
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintf(log, "vm: emulated: %v\n", err)
		return nil
	}
	if err := f.Close(); err != nil {
		return err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	note := filepath.Join(cacheDir, "kvm-"+strings.TrimSpace(string(boot)))
	if known, err := os.ReadFile(note); err == nil {
		q.accel = string(known)
		return nil
	}
	began := time.Now()
	if q.probe(ctx, img) {
		q.accel = "kvm"
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Fprintf(log, "vm: /dev/kvm tried for %.1f s: %s\n", time.Since(began).Seconds(), q.accel)
	return os.WriteFile(note, []byte(q.accel), 0o644)
}

// probe boots the initramfs with KVM.
func (q *qemu) probe(ctx context.Context, img image) bool {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	kvm := *q
	kvm.accel = "kvm"
	cmd := kvm.start(ctx, img, img.initrd, 256, 1, "evictd.probe", "-serial", "stdio")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return false // aborted, or killed at the limit
	}
	return bytes.Contains(out.Bytes(), []byte("evictd-probe-ok"))
}

// start returns the command for a machine with this much memory (MiB) and these
// additions to the kernel's command line.
func (q *qemu) start(ctx context.Context, img image, initrd string, memory, cpus int, add string, more ...string) *exec.Cmd {
	// Address space randomisation, mitigations and the search for a reliable
	// clock only cost time here; psi=1 is for kernels that have it off.
	line := "console=ttyS0 quiet loglevel=4 panic=-1 root=/dev/vda rw psi=1 systemd.unified_cgroup_hierarchy=1 " +
		"systemd.show_status=0 net.ifnames=0 audit=0 nokaslr no_timer_check random.trust_cpu=on " + add
	args := q.command[1:len(q.command):len(q.command)]
	args = append(args, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none", "-M", "q35")
	if q.accel == "kvm" {
		args = append(args, "-accel", "kvm", "-cpu", "host")
	} else {
		args = append(args, "-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off")
		line += " mitigations=off tsc=reliable"
	}
	args = append(args, "-m", fmt.Sprintf("%dM", memory), "-smp", fmt.Sprint(cpus),
		"-kernel", img.kernel, "-initrd", initrd, "-append", line, "-device", "virtio-rng-pci")
	cmd := exec.CommandContext(ctx, q.command[0], append(args, more...)...)
	cmd.Env = append(os.Environ(), q.env...)
	// It ends with us even if we are killed; main keeps its thread for this.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
