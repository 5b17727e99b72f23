package proxy

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"google.golang.org/protobuf/proto"

	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/rawh2"
)

// fieldsOf cuts a message into its fields, tag included, in order.
func fieldsOf(t *testing.T, b []byte) (numbers []protowire.Number, raw [][]byte) {
	t.Helper()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			t.Fatal(protowire.ParseError(m))
		}
		numbers, raw = append(numbers, num), append(raw, b[:n+m])
		b = b[n+m:]
	}
	return numbers, raw
}

// Reason and message of a decorated status are replaced; every other byte of the
// answer, fields no API version has included, is on the wire as the backend sent
// it. An answer that is not decorated is the same to the last bit.
func TestRecorderUnknownFieldsSurviveDecoration(t *testing.T) {
	decided := time.Now()
	status := &runtimeapi.ContainerStatus{
		Id: "c1", State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 137, Reason: "Error", Message: "killed",
		CreatedAt: decided.Add(-2 * time.Minute).UnixNano(), StartedAt: decided.Add(-time.Minute).UnixNano(),
		FinishedAt: decided.Add(time.Second).UnixNano(),
		Labels:     map[string]string{"io.kubernetes.pod.uid": "uid-1"},
	}
	inner, err := proto.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	// Unknown fields of every wire type, before and behind the known ones.
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 7)
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 901, protowire.Fixed64Type), 8)
	unknown = protowire.AppendFixed32(protowire.AppendTag(unknown, 902, protowire.Fixed32Type), 9)
	unknown = append(unknown, payload("bytes of the future")...)
	inner = append(append(bytes.Clone(unknown), inner...), unknown...)
	answer := append(bytes.Clone(unknown), protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner)...)
	answer = append(answer, unknown...)

	w := newWire(t, rawh2.Options{}, respond(answerHeader(), trailers("0", ""), answer))
	method := request("/runtime.v1.RuntimeService/ContainerStatus")
	direct, _ := w.call(w.direct, method, message(nil))
	through, _ := w.call(w.through, method, message(nil))
	sameRecord(t, "without a hold", direct, through)

	rec := w.hold("uid-1", holds.Killed, decided)
	through, _ = w.call(w.through, method, message(nil))
	got, rest := rawh2.Messages(through.Bytes())
	if len(got) != 1 || len(rest) != 0 || got[0].Compressed {
		t.Fatalf("%d messages", len(got))
	}
	numbers, raw := fieldsOf(t, got[0].Payload)
	wantNumbers, want := fieldsOf(t, answer)
	for i := range wantNumbers {
		if i >= len(raw) || wantNumbers[i] != 1 && !bytes.Equal(raw[i], want[i]) {
			t.Fatalf("outer field %d is not what was sent", wantNumbers[i])
		}
	}
	_, _, n := protowire.ConsumeTag(raw[4])
	body, _ := protowire.ConsumeBytes(raw[4][n:])
	if len(numbers) != len(wantNumbers) || numbers[4] != 1 {
		t.Fatalf("outer fields %v, want %v", numbers, wantNumbers)
	}
	others := func(b []byte) (out [][]byte) {
		numbers, raw := fieldsOf(t, b)
		for i, n := range numbers {
			if n != 10 && n != 11 { // reason, message
				out = append(out, raw[i])
			}
		}
		return out
	}
	if g, w := bytes.Join(others(body), nil), bytes.Join(others(inner), nil); !bytes.Equal(g, w) {
		t.Errorf("other fields than reason and message changed\nsent    %x\narrived %x", w, g)
	}
	var decoded runtimeapi.ContainerStatus
	if err := proto.Unmarshal(body, &decoded); err != nil {
		t.Fatal(err)
	}
	if decoded.GetReason() != ReasonEvicted || decoded.GetMessage() != StatusMessage(rec) || decoded.GetExitCode() != 137 {
		t.Errorf("%v", &decoded)
	}
}
