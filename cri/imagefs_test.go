package cri_test

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

func TestImageFilesystems(t *testing.T) {
	s, c, ctx := start(t)
	want := filepath.Dir(c.Endpoint().Path)
	got, err := c.ImageFilesystems(ctx)
	if err != nil || got.Images != want || got.Containers != want {
		t.Errorf("%+v, %v; want %s", got, err, want)
	}
	s.Inject("ImageFsInfo", fakecri.Fault{Times: 1, Raw: [][]byte{{}}}) // no entry at all
	if got, err := c.ImageFilesystems(ctx); err != nil || got.Images != "" || got.Containers != "" {
		t.Errorf("without an entry: %+v, %v", got, err)
	}
	s.Inject("ImageFsInfo", fakecri.Fault{Times: 1, Err: status.Error(codes.Unknown, "broken")})
	if _, err := c.ImageFilesystems(ctx); err == nil || !strings.Contains(err.Error(), "image filesystem of") {
		t.Errorf("got %v", err)
	}
}

func TestRemoveOfWhatIsNotThereSucceeds(t *testing.T) {
	s, c, ctx := start(t)
	s.Inject("RemoveContainer", fakecri.Fault{Times: 1, Err: status.Error(codes.NotFound, "gone")})
	if err := c.RemoveContainer(ctx, "nope"); err != nil {
		t.Error(err)
	}
	s.Inject("RemoveContainer", fakecri.Fault{Times: 1, Err: status.Error(codes.FailedPrecondition, "is running")})
	if err := c.RemoveContainer(ctx, "nope"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("got %v", err)
	}
}
