package holds

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// childDir names the directory in which this test binary is to be a writer that
// never stops, for tests that kill it.
const childDir = "HOLDS_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Println(endlessWriter(dir)) // only comes back with an error
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// endlessWriter makes holds until it is killed: WriteIntent, then Update, and
// the oldest are removed. Hold 1 is changed all the time and never goes.
func endlessWriter(dir string) error {
	w, err := OpenWriter(dir)
	if err != nil {
		return err
	}
	if len(w.Problems()) != 0 {
		return errors.Join(w.Problems()...)
	}
	if err := w.Put(version(1, 0)); err != nil {
		return err
	}
	for n := 1; ; n++ {
		id := w.NextID()
		s, err := w.Reserve()
		if err != nil {
			return err
		}
		p, err := Prepare(version(id, n))
		if err != nil {
			return err
		}
		v := int64(n)
		num := Numbers{ID: id, Available: v, AvailableKubelet: v, Threshold: v, Usage: v, Decided: sample(1).Decided.UnixNano()}
		if err := w.WriteIntent(s, p, &num); err != nil {
			return err
		}
		if n == 1 {
			fmt.Println("ready", id)
		}
		if err := errors.Join(w.Update(version(id, n+1)), w.Update(version(1, n))); err != nil {
			return err
		}
		if all := w.Records(); len(all) > 20 {
			if err := w.Remove(all[1].ID); err != nil {
				return err
			}
		}
	}
}

// startWriter starts the endless writer and waits until it has written.
func startWriter(t *testing.T, dir string) (*exec.Cmd, uint64) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	id, convErr := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(line, "ready ")), 10, 64)
	if err != nil || convErr != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("the writer says %q, %v", line, err)
	}
	return cmd, id
}

// kill -9 at any moment leaves whole holds, none that stood is gone, and the
// next writer goes on with higher IDs and finds nothing to complain about.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	r := openReader(t, dir)
	var lastID uint64
	for round := range 15 {
		cmd, id := startWriter(t, dir)
		if id <= lastID {
			t.Errorf("round %d: id %d, an earlier writer had %d", round, id, lastID)
		}
		for range 2 * round { // another moment each time, without sleeping
			r.Held("uid-1")
		}
		must(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer ended by itself")
		}
		all := r.All()
		if err := r.Problem(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if len(all) == 0 || all[len(all)-1].ID != 1 {
			t.Fatalf("round %d: the standing hold is gone: %v", round, ids(all))
		}
		for _, rec := range all {
			rec.Frozen, rec.KilledAt, rec.ReleasedAt, rec.ReleaseReason, rec.State =
				true, sample(1).KilledAt, sample(1).ReleasedAt, "pressure-over", version(1, int(rec.Usage)).State
			if err := checkVersion(rec); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		lastID = all[0].ID
	}
	w := openWriter(t, dir)
	if len(w.Problems()) != 0 {
		t.Errorf("problems: %v", w.Problems())
	}
	if id := w.NextID(); id <= lastID {
		t.Errorf("id %d, a killed writer had %d", id, lastID)
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startWriter(t, dir)
	_, err := OpenWriter(dir)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", cmd.Process.Pid)) {
		t.Errorf("got %v, want ErrLocked naming process %d", err, cmd.Process.Pid)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	w := openWriter(t, dir) // the kernel has dropped the lock
	_, err = OpenWriter(dir)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("in the same process: %v", err)
	}
	must(t, w.Close())
	must(t, openWriter(t, dir).Close())
}
