package eviction

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// realtimePriority: the lowest of SCHED_FIFO is above every ordinary thread,
// and nothing else of ours needs it.
const realtimePriority = 1

// enterRealtime binds the goroutine to its thread and asks for SCHED_FIFO with
// reset-on-fork. The thread must sleep in each round. Without the permission the
// thread stays ordinary and an error says so.
func enterRealtime() error {
	runtime.LockOSThread()
	attr := unix.SchedAttr{
		Size:     unix.SizeofSchedAttr,
		Policy:   unix.SCHED_FIFO,
		Flags:    unix.SCHED_FLAG_RESET_ON_FORK,
		Priority: realtimePriority,
	}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("SCHED_FIFO refused (CAP_SYS_NICE?), reactions can be late on a busy CPU: %w", err)
	}
	return nil
}

// LockMemory keeps the process's pages in RAM as they are touched, so that no
// reaction waits for a page to be read back from a disk that is busy swapping.
func LockMemory() error {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("mlockall refused (CAP_IPC_LOCK?), reactions can be late when the node swaps: %w", err)
	}
	return nil
}
