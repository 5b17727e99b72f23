package diskusage

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lookAgain is how often what the operator's files and directories say is read
// anew, mountsAgain the same for the list of mounts, which may be megabytes.
const (
	lookAgain   = 10 * time.Second
	mountsAgain = 30 * time.Second
)

// devices are those pods have something on. It is used by the walker's
// goroutine alone.
type devices struct {
	proc string
	node uint64 // of kubelet's pods; 0 when unknown
	on   map[uint64]bool

	overlays map[uint64]uint64 // overlay → where its writes go
	lookedAt time.Time
	clock    func() time.Time
}

// refresh looks where the places lie, and takes the layers' devices.
func (d *devices) refresh(p Places, layers map[string]Layer) {
	d.on = map[uint64]bool{}
	if dev, ok := deviceOf(p.pods()); ok && p.KubeletRoot != "" {
		d.node = dev
		d.on[dev] = true
	}
	if dev, ok := deviceOf(p.LogsDir); ok && p.LogsDir != "" {
		d.on[dev] = true
	}
	for _, l := range layers {
		if l.Device != 0 {
			d.on[l.Device] = true
		}
	}
}

func deviceOf(path string) (uint64, bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0, false
	}
	return st.Dev, true
}

// real says whether files on a device count, and where they lie: a file on an
// overlay lies where the overlay's writes go. Nothing in memory counts, nor any
// device that no pod's own part is on.
func (d *devices) real(dev uint64) (uint64, bool) {
	if d.on[dev] {
		return dev, true
	}
	under, ok := d.overlays[dev]
	if now := d.clock(); !ok && (d.lookedAt.IsZero() || now.Sub(d.lookedAt) >= mountsAgain || now.Before(d.lookedAt)) {
		d.lookedAt = now
		d.overlays = overlaysOf(filepath.Join(d.proc, "1", "mountinfo"))
		under, ok = d.overlays[dev]
	}
	return under, ok && d.on[under]
}

func overlaysOf(file string) map[uint64]uint64 {
	b, err := readBounded(file, maxMountinfo)
	if err != nil {
		return nil // what lies on overlays is not told then
	}
	out := map[uint64]uint64{}
	for dev, upper := range parseOverlays(b) {
		if under, ok := deviceOf(upper); ok {
			out[dev] = under
		}
	}
	return out
}

// readBounded reads a file of the operator's or the kernel's.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only; nothing can be lost
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: longer than %d bytes", path, limit)
	}
	return b, nil
}
