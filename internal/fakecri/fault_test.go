package fakecri

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestDelay(t *testing.T) {
	s, c, ctx := start(t, Options{})
	s.Inject("Version", Fault{Times: 1, Delay: 50 * time.Millisecond})
	begun := time.Now()
	if _, err := c.Version(ctx); err != nil || time.Since(begun) < 50*time.Millisecond {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}

func TestHugeIsExactAndValid(t *testing.T) {
	for _, size := range []int{16, 127, 128, 131, 132, 16386, 1 << 20, 64<<20 + 1} {
		b := hugeMessage(size)
		_, typ, n := protowire.ConsumeTag(b)
		if len(b) != size && (size != 132 || len(b) != 131) || n < 0 || typ != protowire.BytesType || protowire.ConsumeFieldValue(hugeField, typ, b[n:]) != len(b)-n {
			t.Errorf("%d: %d bytes", size, len(b))
		}
	}
}

func TestCutBreaksConnectionsOnly(t *testing.T) {
	s, c, ctx := start(t, Options{})
	s.Inject("Version", Fault{Times: 1, Cut: true})
	if _, err := c.Version(ctx); status.Code(err) != codes.Unavailable {
		t.Errorf("cut: %v", err)
	}
	for {
		if _, err := c.Version(ctx); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if s.Dials() < 2 {
		t.Errorf("%d connections", s.Dials())
	}
}

func TestSilentSaysNothingUntilUp(t *testing.T) {
	s, c, ctx := start(t, Options{})
	if err := s.Silent(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(ctx); err == nil {
		t.Error("it answered")
	}
	if s.Dials() == 0 {
		t.Error("it took no connection")
	}
	if err := s.Up(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := c.Runtime().Version(ctx, &runtimeapi.VersionRequest{}); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}
