package diskusage

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// From linux/ioprio.h.
const (
	ioprioWhoProcess = 1
	ioprioIdle       = 3 << 13
)

// politely binds the calling goroutine to a thread with the least claim on the
// processors and the disk. The thread is never given back: it ends with the
// goroutine. An error says what could not be had; the walker works without.
func politely() error {
	runtime.LockOSThread()
	var errs []error
	tid := unix.Gettid()
	if err := unix.Setpriority(unix.PRIO_PROCESS, tid, 19); err != nil {
		errs = append(errs, fmt.Errorf("nice 19: %w", err))
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(tid), ioprioIdle); errno != 0 {
		errs = append(errs, fmt.Errorf("idle I/O priority: %w", errno))
	}
	return errors.Join(errs...)
}
