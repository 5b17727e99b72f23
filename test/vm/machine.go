package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

const (
	// bootLimit is for a machine that is emulated on a loaded host; it takes 6 s
	// on a quiet one.
	bootLimit = 3 * time.Minute
	bootTries = 3
	// endLimit is what collecting the logs and powering off may take.
	endLimit = 2 * time.Minute
)

// errInfrastructure means that the machine failed and no step is to blame.
var errInfrastructure = errors.New("the virtual machine failed, not what it ran")

// machine is what to boot.
type machine struct {
	memory, cpus int   // MiB
	swap         int   // MiB, 0: none
	disks        []int // MiB each, with the serials data0, data1, …
	shares       []share
	steps        []protocol.Step
	// logs, if not "", gets the guest's console, kernel log and journal.
	logs string
}

// share is a folder of the host; without write it is read only in the guest. disk
// is a copy of it as a disk image, if there is one (see asDisk): programs that run
// while memory ends are read from a disk, as on a node, not over 9p.
type share struct {
	host, mount string
	write       bool
	disk        string
}

// rig boots machines.
type rig struct {
	img   image
	qemu  *qemu
	agent string // the agent's binary
	log   io.Writer
}

// watcher is told what happens in the machine.
type watcher interface {
	begin(step int)
	output(b []byte)
	ended(e protocol.Ended)
}

// run boots a machine and runs its steps. A machine whose agent never answered has
// run nothing: it is booted again, three times in all.
func (r *rig) run(ctx context.Context, m machine, w watcher) error {
	dir, remove, err := lab.NewScratch()
	if err != nil {
		return err
	}
	defer remove()
	initrd, err := r.img.initrdWith(r.agent)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "initrd.img"), initrd, 0o600); err != nil {
		return err
	}
	limit := bootTries*bootLimit + endLimit
	for _, s := range m.steps {
		limit += s.Timeout + 30*time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for try := 1; ; try++ {
		b := &boot{rig: r, machine: m, dir: filepath.Join(dir, fmt.Sprint(try)), watcher: w}
		if err := os.Mkdir(b.dir, 0o700); err != nil {
			return err
		}
		err := b.run(ctx, filepath.Join(dir, "initrd.img"))
		b.keepLogs()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%w: %w\n%s", errInfrastructure, err, b.lastWords())
		if b.hello || try == bootTries || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(r.log, "vm: boot %d of %d: %v\n", try, bootTries, err)
	}
}

// boot is one try.
type boot struct {
	*rig
	machine
	watcher
	dir   string
	hello bool // the agent answered
	done  bool
}

func (b *boot) run(ctx context.Context, initrd string) error {
	socket := filepath.Join(b.dir, "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // a second close
	args, err := b.devices(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := b.qemu.start(ctx, b.img, initrd, b.memory, b.cpus, "", args...)
	errFile, err := os.Create(filepath.Join(b.dir, "qemu.err"))
	if err != nil {
		return err
	}
	defer func() { _ = errFile.Close() }() // qemu has its own descriptor
	cmd.Stdout, cmd.Stderr = errFile, errFile
	cmd.Env = append(cmd.Env, "TMPDIR="+b.dir) // where the root disk's changes go
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(ended)
	}()
	talk := make(chan error, 1)
	go func() { talk <- b.talk(ctx, listener, began) }()
	return b.wait(cancel, cmd, ended, talk)
}

// wait returns when qemu has ended and the conversation is over.
func (b *boot) wait(cancel context.CancelFunc, cmd *exec.Cmd, ended <-chan struct{}, talk <-chan error) error {
	select {
	case err := <-talk:
		if err != nil {
			cancel() // kills qemu
			<-ended
			return err
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			// All was said; a guest that does not power off is ended.
			cancel()
			<-ended
		}
		return nil
	case <-ended:
		// What was on its way may still complete the conversation.
		select {
		case err := <-talk:
			if err == nil && b.done {
				return nil
			}
			return errors.Join(fmt.Errorf("qemu ended early: %v", cmd.ProcessState), err)
		case <-time.After(5 * time.Second):
			return fmt.Errorf("qemu ended early: %v", cmd.ProcessState)
		}
	}
}

// talk is the conversation with the agent.
func (b *boot) talk(ctx context.Context, listener net.Listener, began time.Time) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	conn, err := listener.Accept()
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	stopConn := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stopConn()

	if err := conn.SetReadDeadline(time.Now().Add(bootLimit)); err != nil {
		return err
	}
	dec := json.NewDecoder(conn)
	var m protocol.Message
	if err := dec.Decode(&m); err != nil || m.Hello == nil {
		return errors.Join(errors.New("the guest did not come up"), ctx.Err(), err)
	}
	b.hello = true
	fmt.Fprintf(b.log, "vm: up after %.1f s: %d MiB, %d processors, swap %d MiB, kernel %s, %s\n",
		time.Since(began).Seconds(), b.memory, b.cpus, b.swap, m.Hello.Kernel, b.qemu.accel)
	if !m.Hello.Systemd {
		return errors.New("PID 1 is not systemd")
	}
	if err := json.NewEncoder(conn).Encode(b.job()); err != nil {
		return err
	}
	for !b.done {
		// The guest keeps the steps' limits; this is for one that hangs.
		if err := conn.SetReadDeadline(time.Now().Add(b.longest() + endLimit)); err != nil {
			return err
		}
		var m protocol.Message
		if err := dec.Decode(&m); err != nil {
			return errors.Join(errors.New("the guest fell silent"), ctx.Err(), err)
		}
		if err := b.handle(m); err != nil {
			return err
		}
	}
	return nil
}

func (b *boot) handle(m protocol.Message) error {
	switch {
	case m.Begin != nil:
		b.begin(m.Begin.Step)
	case m.Output != nil:
		b.output(m.Output)
	case m.Ended != nil:
		b.ended(*m.Ended)
	case m.File != nil:
		name := filepath.Base(m.File.Name)
		return os.WriteFile(filepath.Join(b.dir, name), m.File.Data, 0o644)
	case m.Problem != "":
		return fmt.Errorf("inside: %s", m.Problem)
	case m.Done:
		b.done = true
	}
	return nil
}

func (b *boot) longest() time.Duration {
	var d time.Duration
	for _, s := range b.steps {
		d = max(d, s.Timeout)
	}
	return d
}

// keepLogs copies what the guest left to the folder for it.
func (b *boot) keepLogs() {
	if b.logs == "" {
		return
	}
	for _, name := range []string{"console.log", "qemu.err", "dmesg.txt", "journal.txt"} {
		body, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			continue // it did not get that far
		}
		if err = os.MkdirAll(b.machine.logs, 0o755); err == nil {
			err = os.WriteFile(filepath.Join(b.machine.logs, name), body, 0o644)
		}
		if err != nil {
			fmt.Fprintf(b.log, "vm: keeping %s: %v\n", name, err)
		}
	}
}

// lastWords are for the message about a machine that failed.
func (b *boot) lastWords() string {
	var out strings.Builder
	for _, name := range []string{"qemu.err", "console.log"} {
		if body, err := os.ReadFile(filepath.Join(b.dir, name)); err == nil && len(body) > 0 {
			fmt.Fprintf(&out, "end of its %s:\n%s\n", name, lastLines(body, 20))
		}
	}
	return out.String()
}
