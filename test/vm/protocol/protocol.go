// Package protocol is what test/vm and its agent inside the virtual machine say
// to each other: JSON values, one after the other, over a virtio-serial port.
// The host sends one Job; the guest answers with Messages until Done.
package protocol

import "time"

// Port is the name of the virtio-serial port.
const Port = "cri-evictd.vm"

// Job is what the guest is to do. The guest powers itself off at its end.
type Job struct {
	Shares []Share
	// Swap says that the disk with the serial SwapDisk is to become swap space.
	Swap  bool
	Steps []Step
}

// SwapDisk is the serial number of the disk used for swap space.
const SwapDisk = "swap"

// Share is a folder of the host: over 9p, or a copy of it on a disk.
type Share struct {
	Tag   string // the device's mount tag; the disk's serial number
	Mount string // where the guest mounts it
	Write bool
	Disk  bool
}

// Step is one command. Steps run one after the other, as root; a step that fails
// does not stop the next ones unless Needed.
type Step struct {
	Name    string
	Args    []string
	Env     []string // added to the agent's own small environment
	Dir     string   // working directory; "": /root
	Timeout time.Duration
	Needed  bool // what follows makes no sense when this one fails
}

// Message is one thing the guest says; exactly one field is set.
type Message struct {
	Hello   *Hello `json:",omitempty"` // first, before the job is read
	Begin   *Begin `json:",omitempty"`
	Output  []byte `json:",omitempty"` // stdout and stderr of the running step
	Ended   *Ended `json:",omitempty"`
	File    *File  `json:",omitempty"` // a log of the guest, after the last step
	Problem string `json:",omitempty"` // the guest itself failed: no step is to blame
	Done    bool   `json:",omitempty"` // last
}

// Hello says that the guest is up.
type Hello struct {
	Kernel  string
	Systemd bool    // PID 1 is systemd
	Uptime  float64 // seconds since the kernel's start
}

// Begin says that a step has begun.
type Begin struct{ Step int }

// Ended is the result of a step.
type Ended struct {
	Step     int
	Code     int // exit code; 128 + signal; 127 if it could not be started
	TimedOut bool
	Seconds  float64 // as the guest counts them
}

// File is a log the host may want to keep.
type File struct {
	Name string
	Data []byte
}
