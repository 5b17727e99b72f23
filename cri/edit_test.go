package cri

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func evict(ContainerStatusView) (string, string, bool) { return "Evicted", "why", true }

func fullStatus() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "n"}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt: 1, StartedAt: 2, FinishedAt: 3, ExitCode: -1, Image: &runtimeapi.ImageSpec{Image: "i"}, ImageRef: "r",
		Reason: "Error", Message: "m", Labels: map[string]string{LabelPodUID: "u"}, LogPath: "/l", ImageId: "id",
	}
}

func unknown(b []byte) []byte {
	b = protowire.AppendTag(bytes.Clone(b), 5000, protowire.Fixed32Type)
	return protowire.AppendFixed32(b, 77)
}

func TestEditReplacesReasonAndMessageOnly(t *testing.T) {
	bare := fullStatus()
	bare.Reason, bare.Message = "", ""
	tiny := &runtimeapi.ContainerStatus{Id: "c"}
	for name, s := range map[string]*runtimeapi.ContainerStatus{"full": fullStatus(), "bare": bare, "tiny": tiny, "empty": {}} {
		inner := unknown(encode(t, s))
		resp := protowire.AppendTag(nil, 1, protowire.BytesType)
		resp = unknown(protowire.AppendBytes(resp, inner))
		before := bytes.Clone(resp)
		out, n, err := EditContainerStatus(resp, evict)
		if err != nil || n != 1 {
			t.Fatalf("%s: %d %v", name, n, err)
		}
		if !bytes.Equal(resp, before) {
			t.Errorf("%s: the original was written to", name)
		}
		want := new(runtimeapi.ContainerStatusResponse)
		if err := proto.Unmarshal(resp, want); err != nil {
			t.Fatal(err)
		}
		want.Status.Reason, want.Status.Message = "Evicted", "why"
		got := new(runtimeapi.ContainerStatusResponse)
		if err := proto.Unmarshal(out, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: got %v, want %v (%v)", name, got, want, err)
		}
	}
}

func TestEditKeepsOrderAndOddEncodings(t *testing.T) {
	// Labels before the state, the reason twice, a length that takes too many
	// bytes: valid, though no generated code writes it.
	var s []byte
	s = protowire.AppendTag(s, 12, protowire.BytesType)
	s = protowire.AppendBytes(s, encode(t, &runtimeapi.KeyValue{Key: "k"}))
	rest := len(s)
	s = protowire.AppendTag(s, 10, protowire.BytesType)
	s = protowire.AppendString(s, "first")
	s = append(s, 0x18, 0x82, 0x80, 0x00) // state = 2 in three bytes
	s = protowire.AppendTag(s, 10, protowire.BytesType)
	s = protowire.AppendString(s, "second")
	resp := protowire.AppendTag(nil, 1, protowire.BytesType)
	resp = protowire.AppendBytes(resp, s)

	out, n, err := EditContainerStatus(resp, evict)
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	var want []byte
	want = protowire.AppendTag(want, 10, protowire.BytesType)
	want = protowire.AppendString(want, "Evicted")
	want = protowire.AppendTag(want, 11, protowire.BytesType)
	want = protowire.AppendString(want, "why")
	want = append(want, s[:rest]...)
	want = append(want, 0x18, 0x82, 0x80, 0x00)
	wantResp := protowire.AppendTag(nil, 1, protowire.BytesType)
	wantResp = protowire.AppendBytes(wantResp, want)
	if !bytes.Equal(out, wantResp) {
		t.Errorf("got  %x\nwant %x", out, wantResp)
	}
}

func TestEditSeesWhatIsThere(t *testing.T) {
	var seen ContainerStatusView
	resp := encode(t, &runtimeapi.ContainerStatusResponse{Status: fullStatus()})
	out, n, err := EditContainerStatus(resp, func(v ContainerStatusView) (string, string, bool) {
		seen = v
		return "x", "y", false
	})
	want := ContainerStatusView{ID: "c", PodUID: "u", Exited: true, StartedAt: 2, FinishedAt: 3, ExitCode: -1, Reason: "Error", Message: "m"}
	if err != nil || n != 0 || seen != want {
		t.Errorf("%d %v %+v", n, err, seen)
	}
	if &out[0] != &resp[0] {
		t.Error("not the very answer")
	}
}

func TestEditLeavesAStatusInPartsAlone(t *testing.T) {
	one := encode(t, &runtimeapi.ContainerStatusResponse{Status: fullStatus()})
	twice := append(bytes.Clone(one), one...)
	for _, resp := range [][]byte{twice, nil, unknown(nil)} {
		if out, n, err := EditContainerStatus(resp, evict); err != nil || n != 0 || !bytes.Equal(out, resp) {
			t.Errorf("%d %v", n, err)
		}
	}
}

func TestEditGarbageIsAnErrorAndLeavesItAlone(t *testing.T) {
	for _, resp := range [][]byte{{0xff}, {0x0a, 0x01, 0xff}, {0x1a, 0x01, 0xff}, {0x1a, 0x03, 0x62, 0x01, 0xff}} {
		for _, edit := range []func([]byte, Rewrite) ([]byte, int, error){EditContainerStatus, EditPodSandboxStatus} {
			out, n, err := edit(resp, evict)
			if n != 0 || !bytes.Equal(out, resp) {
				t.Errorf("%x: %d %v", resp, n, err)
			}
		}
	}
	if _, _, err := EditPodSandboxStatus([]byte{0x1a, 0x01, 0xff}, evict); err == nil {
		t.Error("no error")
	}
}

func TestEditNeverWritesInvalidText(t *testing.T) {
	resp := encode(t, &runtimeapi.ContainerStatusResponse{Status: fullStatus()})
	out, _, err := EditContainerStatus(resp, func(ContainerStatusView) (string, string, bool) { return "E\xff", "\xc3", true })
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(out, new(runtimeapi.ContainerStatusResponse)); err != nil {
		t.Error(err)
	}
}
