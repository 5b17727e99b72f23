package cgroupfs

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pressureWindows is the ladder of windows to ask for. A short one needs
// CAP_SYS_RESOURCE and kernel 6.4, half a second CAP_SYS_RESOURCE; two seconds
// is all that others get.
func pressureWindows() []time.Duration {
	return []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}
}

// pressureShare is the part of a window that some task has to be stalled for.
const pressureShare = 10

// OpenPressureEvent asks the kernel (PSI) for an event when some task was
// stalled on memory for a tenth of a window, the shortest that the kernel and
// our privilege allow. Its Detail says which. Without PSI, and where it is
// refused, it is ErrAbsent.
//
// An event of the longest window, given without privilege, is evaluated by the
// kernel's averaging only, and whoever reads the file does that work in its
// place: with other readers of /proc/pressure/memory it may come late or never.
// Nothing of ours reads that file.
func (f *FS) OpenPressureEvent() (*Event, error) {
	path := filepath.Join(f.roots.Proc, "pressure/memory")
	var err error
	for _, window := range pressureWindows() {
		var e *Event
		if e, err = pressureEvent(path, window); err == nil {
			return e, nil
		}
	}
	return nil, err
}

func pressureEvent(path string, window time.Duration) (*Event, error) {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_NONBLOCK)
	if err != nil {
		return nil, notOffered(path, err)
	}
	if err := pressureTrigger(fd, window); err != nil {
		_ = unix.Close(fd) // nothing was asked for
		if errors.Is(err, unix.EINVAL) {
			return nil, fmt.Errorf("%s: a window of %v is refused: %w", path, window, ErrAbsent)
		}
		return nil, notOffered(path, err)
	}
	detail := fmt.Sprintf("some task stalled %v of %v", window/pressureShare, window)
	if window == 2*time.Second {
		detail += ", unprivileged: late while others read the file"
	}
	return &Event{fd: fd, mask: unix.EPOLLPRI, path: path, detail: detail}, nil
}

// pressureTrigger writes a trigger, unless the file is not the kernel's: a
// checked-in tree must stay as it is.
func pressureTrigger(fd int, window time.Duration) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	if int64(st.Type) != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("not a mounted proc: %w", unix.EOPNOTSUPP)
	}
	// Not writeAll: this file cannot be written at an offset.
	for {
		_, err := unix.Write(fd, pressureText(window))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// pressureText is what the kernel takes: microseconds, and a last byte that it
// writes over.
func pressureText(window time.Duration) []byte {
	return fmt.Appendf(nil, "some %d %d\n", (window / pressureShare).Microseconds(), window.Microseconds())
}
