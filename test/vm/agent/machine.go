package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

// openPort waits for the virtio-serial port of our name: its driver may still be
// loading.
func openPort(within time.Duration) (*os.File, error) {
	deadline := time.Now().Add(within)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, fmt.Errorf("find the port: %w", err)
		}
		for _, name := range names {
			if text(name) != protocol.Port {
				continue
			}
			dev := "/dev/" + filepath.Base(filepath.Dir(name))
			f, err := os.OpenFile(dev, os.O_RDWR, 0)
			if err == nil {
				return f, nil
			}
			if time.Now().After(deadline) {
				return nil, fmt.Errorf("open the port: %w", err)
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no virtio-serial port %q after %v", protocol.Port, within)
		}
		<-tick.C
	}
}

// prepare mounts the shares and switches swap on.
func prepare(job protocol.Job) error {
	for _, s := range job.Shares {
		if err := mount(s); err != nil {
			return fmt.Errorf("mount the host's folder at %s: %w", s.Mount, err)
		}
	}
	if !job.Swap {
		return nil
	}
	dev, err := disk(protocol.SwapDisk)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"mkswap", dev}, {"swapon", dev}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

func mount(s protocol.Share) error {
	if err := os.MkdirAll(s.Mount, 0o755); err != nil {
		return err
	}
	if s.Disk {
		dev, err := disk(s.Tag)
		if err != nil {
			return err
		}
		return unix.Mount(dev, s.Mount, "ext4", unix.MS_RDONLY, "")
	}
	// Both sides see each other's writes at once only without a cache; without
	// one, each start of a large program reads it anew, seconds when emulated.
	flags, cache := uintptr(unix.MS_RDONLY), "loose"
	if s.Write {
		flags, cache = 0, "none"
	}
	return unix.Mount(s.Tag, s.Mount, "9p", flags, "trans=virtio,version=9p2000.L,msize=262144,cache="+cache)
}

// disk finds a disk by its serial number.
func disk(serial string) (string, error) {
	found, err := filepath.Glob("/sys/block/vd*/serial")
	if err != nil {
		return "", err
	}
	for _, f := range found {
		if text(f) == serial {
			return "/dev/" + filepath.Base(filepath.Dir(f)), nil
		}
	}
	return "", errors.New("no disk with the serial " + serial)
}

// text is a file's content without white space around it, "" if unreadable.
func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
