package holds

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestUninterrupted(t *testing.T) {
	calls := 0
	err := uninterrupted(func() error {
		if calls++; calls < 3 {
			return unix.EINTR
		}
		return unix.ENOSPC
	})
	if calls != 3 || err != unix.ENOSPC {
		t.Errorf("%d calls, %v", calls, err)
	}
}
