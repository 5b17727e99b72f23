package cri

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDeniedAccessIsExplained(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	denied := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	err := explainDial(Endpoint{Path: path}, denied)
	us := fmt.Sprintf("no access to %s as uid %d gid %d", path, os.Geteuid(), os.Getegid())
	if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), us) || !strings.Contains(err.Error(), "mode 0640") {
		t.Errorf("got %v", err)
	}
	if err := explainDial(Endpoint{Path: path + ".absent"}, denied); !strings.Contains(err.Error(), "cannot be read either") {
		t.Errorf("got %v", err)
	}
	refused := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	if err := explainDial(Endpoint{Path: path}, refused); !errors.Is(err, refused) || err.Error() != refused.Error() {
		t.Errorf("got %v", err)
	}
}
