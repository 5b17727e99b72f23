package systemd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Names of the units in this folder that commands start and stop.
const (
	ProxyUnit  = "cri-evictd-proxy.service"
	BypassUnit = "cri-evictd-bypass.service"
)

// ErrNoManager says that there is no systemd to ask.
var ErrNoManager = errors.New("systemd does not answer")

// StartUnit starts a unit and waits until it is up. The error has what systemctl
// said.
func StartUnit(ctx context.Context, name string) error {
	_, err := systemctl(ctx, "start", name)
	return err
}

// UnitState returns a unit's state: active, inactive, failed, activating...
func UnitState(ctx context.Context, name string) (string, error) {
	out, err := systemctl(ctx, "show", "--property=ActiveState", "--value", name)
	return strings.TrimSpace(out), err
}

// systemctl is run rather than the bus spoken: it is what an operator would type,
// and it finds systemd without a bus daemon too.
func systemctl(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: %w", ErrNoManager, err)
	}
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
