package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/test/vm/cutdisk"
	"github.com/cri-evictd/cri-evictd/test/vm/survivor/told"
)

const (
	cutMemory   = 1024 // MiB
	cutDiskSize = "48M"
	// cutBoot is how long a boot may take until all is checked.
	cutBoot = 5 * time.Minute
	// mostRequests is how many requests of its disk a machine may live, and mostLife
	// how long, when pods are evicted; an eviction takes some thirty.
	mostRequests = 90
	mostLife     = time.Minute
	// duringBoot is the share of cuts, in percent, that come before the machine has
	// got over the one before, and bootRequests how many requests it has for that.
	duringBoot   = 15
	bootRequests = 60
)

// powercut cuts the power of one machine again and again.
type powercut struct {
	*rig
	dir      string
	disk     *cutdisk.Disk
	facts    told.Facts
	dice     *rand.Rand
	pictures int
	out      io.Writer
	serial   bytes.Buffer // what the running machine said
}

func powercutCommand(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	flags := flag.NewFlagSet("powercut", flag.ContinueOnError)
	flags.SetOutput(stderr)
	cuts := flags.Int("cuts", 5, "how often the power is cut")
	pictures := flags.Int("pictures", 2, "how many other moments of each machine's life are looked at as well, without a boot")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of the random choices")
	if err := flags.Parse(args); err != nil {
		return 0, errors.Join(errUsage, err)
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
	p := &powercut{rig: r, dir: dir, dice: rand.New(rand.NewPCG(*seed, 0)), pictures: *pictures, out: stdout}
	fmt.Fprintf(stdout, "vm: %d power cuts, seed %d\n", *cuts, *seed)
	if err := p.prepare(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range *cuts + 1 {
		p.facts.LookOnly = i == *cuts
		if err := p.life(ctx, i); err != nil {
			fmt.Fprintf(stdout, "vm: machine %d: %v\nwhat it said:\n%s\n", i, err, lastLines(p.serial.Bytes(), 60))
			return exitFailed, nil
		}
	}
	fmt.Fprintf(stdout, "vm: %d power cuts survived, %d evictions kept, %s\n", *cuts, len(p.facts.Kept), seconds(time.Since(began)))
	if len(p.facts.Kept) == 0 {
		return 0, errors.New("not a single eviction was there to be lost")
	}
	return 0, nil
}

// prepare builds the programs and the disk.
func (p *powercut) prepare(ctx context.Context) error {
	source, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	for name, pkg := range map[string]string{"survivor": "./test/vm/survivor", "cri-evictd": "./cmd/cri-evictd"} {
		if err := lab.RunGo(ctx, source, nil, "build", "-ldflags=-s -w", "-o", filepath.Join(p.dir, name), pkg); err != nil {
			return err
		}
	}
	image := filepath.Join(p.dir, "disk.img")
	if err := quietly(ctx, nil, "mke2fs", "-q", "-F", "-t", "ext4", "-J", "size=4", image, cutDiskSize); err != nil {
		return err
	}
	b, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	p.disk = cutdisk.New(b)
	return nil
}

// initrd is the machine's: kernel modules, the programs and what is known.
func (p *powercut) initrd() (string, error) {
	base, err := os.ReadFile(p.img.initrd)
	if err != nil {
		return "", err
	}
	b := bytes.NewBuffer(base)
	c := &cpio{w: b}
	init, err := guestFiles.ReadFile("guest/powercut.sh")
	if err != nil {
		return "", err
	}
	facts, err := json.Marshal(p.facts)
	if err != nil {
		return "", err
	}
	c.program("init", init) // in the place of the other one
	c.program("facts.json", facts)
	for _, name := range []string{"survivor", "cri-evictd"} {
		body, err := os.ReadFile(filepath.Join(p.dir, name))
		if err != nil {
			return "", err
		}
		c.program(name, body)
	}
	if err := c.close(); err != nil {
		return "", err
	}
	path := filepath.Join(p.dir, "initrd.img")
	return path, os.WriteFile(path, b.Bytes(), 0o600)
}

// life is one boot, until the power is cut or all was looked at.
func (p *powercut) life(ctx context.Context, i int) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	initrd, err := p.initrd()
	if err != nil {
		return err
	}
	socket := filepath.Join(p.dir, fmt.Sprintf("d%d", i))
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // a second close
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = p.disk.Serve(conn)
		}
		served <- err
	}()
	cmd := p.qemu.start(ctx, p.img, initrd, cutMemory, processors(), "",
		"-drive", "driver=nbd,server.type=unix,server.path="+socket+",if=none,id=cut,cache.direct=on",
		"-device", "virtio-blk-pci,drive=cut", "-serial", "stdio")
	p.serial.Reset()
	lines := make(chan string)
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(said); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	when, err := p.watch(lines, began)
	// The power goes, whatever happened: qemu with SIGKILL, and its disk's cache.
	p.disk.Cut()
	cancel()
	_ = cmd.Wait() // killed
	_ = l.Close()
	serveErr := <-served // that qemu is gone, unless something was wrong before
	if err != nil {
		return fmt.Errorf("%w; the disk: %v\n%s", err, serveErr, &errs)
	}
	n := p.disk.Ops()
	fmt.Fprintf(p.out, "vm: machine %d: %s; %d requests, %d of them behind the last flush; %d evictions kept\n",
		i, when, n, n-p.disk.LastFlush(n), len(p.facts.Kept))
	if err := p.look(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	p.disk.Restore(p.dice)
	return nil
}

// watch follows a machine until the power is to be cut, and says when that was.
func (p *powercut) watch(lines <-chan string, began time.Time) (when string, err error) {
	limit := time.NewTimer(cutBoot)
	defer limit.Stop()
	life, checked := time.Duration(0), false
	if !p.facts.LookOnly && p.dice.IntN(100) < duringBoot {
		p.disk.CutAfter(1 + p.dice.IntN(bootRequests))
	}
	gone := p.disk.Gone()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return "", errors.New("the machine ended by itself")
			}
			p.serial.WriteString(line + "\n")
			word, rest, err := p.facts.Note(line)
			switch {
			case err != nil:
				return "", err
			case word == told.Fail:
				return "", errors.New(rest)
			case word == told.Version && p.first():
				fmt.Fprintf(p.out, "vm: `cri-evictd version` takes %s in the machine\n", rest)
			case word == told.Checked:
				checked = true
				if p.facts.LookOnly {
					return fmt.Sprintf("well after %s", seconds(time.Since(began))), nil
				}
			case word == told.Live:
				life = time.Since(began)
				p.disk.CutAfter(1 + p.dice.IntN(mostRequests))
				limit.Reset(mostLife)
			}
		case <-gone:
			if !checked {
				return fmt.Sprintf("cut while it came up, after %s", seconds(time.Since(began))), nil
			}
			return fmt.Sprintf("up after %s, cut after %s more", seconds(life), seconds(time.Since(began)-life)), nil
		case <-limit.C:
			if life == 0 {
				return "", fmt.Errorf("not up after %s", seconds(cutBoot))
			}
			return fmt.Sprintf("up after %s, cut after %s more, in peace", seconds(life), seconds(mostLife)), nil
		}
	}
}

// first says whether this is the first boot.
func (p *powercut) first() bool { return len(p.facts.Began) == 0 }

// look at other moments at which the power might have gone. A ledger must then have
// at least what it had at the last flush before, and at most what it had then.
func (p *powercut) look(ctx context.Context) error {
	n := p.disk.Ops()
	for range p.pictures {
		at := p.dice.IntN(n + 1)
		least, err := p.ledger(ctx, p.disk.After(p.disk.LastFlush(at), nil))
		if err != nil {
			return fmt.Errorf("at the flush before request %d: %w", at, err)
		}
		most, err := p.ledger(ctx, p.disk.After(at, nil))
		if err != nil {
			return fmt.Errorf("at request %d, with nothing lost: %w", at, err)
		}
		got, err := p.ledger(ctx, p.disk.After(at, p.dice))
		if err != nil {
			return fmt.Errorf("at request %d: %w", at, err)
		}
		for id, uid := range least {
			// A hold may be gone by then, and with it the last trace of a decision
			// that was not kept yet.
			if _, still := most[id]; still && got[id] != uid {
				return fmt.Errorf("at request %d: decision %d about pod %q is lost: %v, was %v", at, id, uid, got, least)
			}
		}
		for id, uid := range got {
			if _, was := least[id]; !was && most[id] != uid {
				return fmt.Errorf("at request %d: decision %d about pod %q was never made: %v", at, id, uid, most)
			}
		}
	}
	return nil
}

// ledger reads the ledger on a disk as a boot would find it.
func (p *powercut) ledger(ctx context.Context, disk []byte) (decided map[uint64]string, err error) {
	image, mount := filepath.Join(p.dir, "picture.img"), filepath.Join(p.dir, "picture")
	if err := errors.Join(os.WriteFile(image, disk, 0o600), os.MkdirAll(mount, 0o700)); err != nil {
		return nil, err
	}
	if err := quietly(ctx, nil, "mount", "-t", "ext4", "-o", "loop", image, mount); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, quietly(ctx, nil, "umount", mount)) }()
	return told.Decisions(filepath.Join(mount, "ledger.db"))
}
