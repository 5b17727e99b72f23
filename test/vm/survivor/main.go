// Command survivor is PID 1 of a machine whose power is cut again and again (see
// `vm powercut`). At each boot it looks whether evictor and proxy have got over the
// last cut, and then has pods evicted and processes hand over until the next. The
// runtime is a fake one; pods, cgroups, kills, ledger and file system are real.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cri-evictd/cri-evictd/test/vm/survivor/told"
)

const (
	stateDir = "/state"
	dir      = "/run/e" // of sockets and configuration
	// patience bounds every wait; the machine is emulated.
	patience = 2 * time.Minute
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "take" {
		take(os.Args[2])
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "survivor: only for the machine of `vm powercut`")
		os.Exit(2)
	}
	if err := live(); err != nil {
		told.Say(told.Fail, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) // else the host ends the machine
	select {}
}

// live ends with an error, or when the host wanted a look only.
func live() error {
	b, err := os.ReadFile("/facts.json")
	if err != nil {
		return err
	}
	var known told.Facts
	if err := json.Unmarshal(b, &known); err != nil {
		return err
	}
	if err := intact(known); err != nil {
		return fmt.Errorf("after the cut: %w", err)
	}
	n, err := newNode()
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := n.start(ctx); err != nil {
		return errors.Join(err, n.logs())
	}
	if err := n.calm(ctx, known); err != nil {
		return errors.Join(fmt.Errorf("after the boot: %w", err), n.logs())
	}
	told.Say(told.Checked)
	if known.LookOnly {
		return nil
	}
	told.Say(told.Live)
	ends := make(chan error)
	go func() { ends <- n.handOvers(ctx) }()
	go func() { ends <- n.evictions(ctx) }()
	return errors.Join(<-ends, n.logs())
}

// intact looks at the state directory before anybody opens it.
func intact(known told.Facts) error {
	aside, err := filepath.Glob(stateDir + "/*corrupt*")
	if err != nil {
		return err
	}
	for _, path := range aside {
		// A cut in the first moments of the first start leaves an empty file, which is
		// put aside like others that were emptied.
		if st, err := os.Stat(path); err != nil || st.Size() > 0 {
			return errors.Join(fmt.Errorf("a ledger was put aside: %s", path), err)
		}
	}
	return known.In(filepath.Join(stateDir, "ledger.db"))
}

// take is a pod's process: it takes this much memory and stays.
func take(size string) {
	n, err := strconv.Atoi(size)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	b := make([]byte, n)
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(b)
	}
}
