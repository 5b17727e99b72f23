// Command agent is the virtual machine's end of test/vm: it takes a job from the
// host over a virtio-serial port, runs its steps, streams what they print, and
// powers the machine off. It is no use outside that machine and refuses to run
// there.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

// marker is in the machine's image and nowhere else.
const marker = "/etc/cri-evictd-vm"

func main() {
	if _, err := os.Stat(marker); err != nil {
		fmt.Fprintf(os.Stderr, "agent: only for the virtual machine of test/vm: %v\n", err)
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "agent: %v\n", err)
		say(err.Error())
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintf(os.Stderr, "agent: power off: %v\n", err)
		os.Exit(1)
	}
}

// say leaves a last word on the console, which the host shows when all else
// fails.
func say(text string) {
	_ = os.WriteFile("/dev/console", []byte("agent: "+text+"\n"), 0) // nowhere else to say it
}

func run() error {
	port, err := openPort(2 * time.Minute)
	if err != nil {
		return err
	}
	out := &sender{enc: json.NewEncoder(port)}
	if err := out.send(protocol.Message{Hello: hello()}); err != nil {
		return err
	}
	var job protocol.Job
	if err := json.NewDecoder(port).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := prepare(job); err != nil {
		return errors.Join(out.send(protocol.Message{Problem: err.Error()}), out.send(protocol.Message{Done: true}))
	}
	for i, step := range job.Steps {
		ended, err := runStep(out, i, step)
		if err != nil {
			return err
		}
		if ended.Code != 0 && step.Needed {
			break
		}
	}
	for _, f := range logs() {
		if err := out.send(protocol.Message{File: &f}); err != nil {
			return err
		}
	}
	return out.send(protocol.Message{Done: true})
}

// sender writes whole messages from several goroutines.
type sender struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (s *sender) send(m protocol.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enc.Encode(m); err != nil {
		return fmt.Errorf("write to the host: %w", err)
	}
	return nil
}

// Write makes sender the output of a step.
func (s *sender) Write(b []byte) (int, error) {
	if err := s.send(protocol.Message{Output: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

func hello() *protocol.Hello {
	h := &protocol.Hello{Kernel: "unknown"}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/1/comm"); err == nil {
		h.Systemd = strings.TrimSpace(string(b)) == "systemd"
	}
	if b, err := os.ReadFile("/proc/uptime"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		if v, err := strconv.ParseFloat(first, 64); err == nil {
			h.Uptime = v
		}
	}
	return h
}

// logs are the kernel's and the journal's.
func logs() []protocol.File {
	var files []protocol.File
	for _, l := range []struct {
		name string
		args []string
	}{
		{"dmesg.txt", []string{"dmesg"}},
		{"journal.txt", []string{"journalctl", "-b", "--no-pager", "-o", "short-monotonic"}},
	} {
		out, err := exec.Command("timeout", append([]string{"30"}, l.args...)...).CombinedOutput()
		if err != nil {
			out = append(out, "\n"+err.Error()+"\n"...)
		}
		files = append(files, protocol.File{Name: l.name, Data: out})
	}
	return files
}
