package proxy

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
)

const kubeletForm = "The node was low on resource: memory. Threshold quantity: 500Mi, available: 430Mi. " +
	"Pod hog was using 900Mi, request is 100Mi, has larger consumption of memory. "

// exited is the status of a container that ran from -60 s to +1 s around at.
func exited(uid string, at time.Time) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: "c1", Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		State:     runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt: at.Add(-61 * time.Second).UnixNano(), StartedAt: at.Add(-60 * time.Second).UnixNano(),
		FinishedAt: at.Add(time.Second).UnixNano(), ExitCode: 137, Reason: "Error", Message: "old text",
		Labels: map[string]string{cri.LabelPodUID: uid}, LogPath: "/log",
	}
}

func withUnknown(b []byte) []byte { return append(bytes.Clone(b), payload("unknown")...) }

func TestStatusOfAnEvictedContainerSaysSo(t *testing.T) {
	at := time.Now().Truncate(time.Microsecond)
	tests := map[string]struct {
		state  holds.State
		change func(*runtimeapi.ContainerStatus)
		want   bool
	}{
		"killed":                       {state: holds.Killed, want: true},
		"intent":                       {state: holds.Intent, want: true},
		"released":                     {state: holds.Released, want: true},
		"ended at the decision itself": {state: holds.Killed, want: true, change: func(s *runtimeapi.ContainerStatus) { s.FinishedAt = at.UnixNano() }},
		"started at the decision":      {state: holds.Killed, want: true, change: func(s *runtimeapi.ContainerStatus) { s.StartedAt = at.UnixNano() }},
		"exit code 0":                  {state: holds.Killed, want: true, change: func(s *runtimeapi.ContainerStatus) { s.ExitCode = 0; s.Reason = "Completed" }},
		"nothing said so far":          {state: holds.Killed, want: true, change: func(s *runtimeapi.ContainerStatus) { s.Reason, s.Message = "", "" }},
		"ended before":                 {state: holds.Killed, change: func(s *runtimeapi.ContainerStatus) { s.FinishedAt = at.UnixNano() - 1 }},
		"started later":                {state: holds.Killed, change: func(s *runtimeapi.ContainerStatus) { s.StartedAt = at.UnixNano() + 1 }},
		"never started":                {state: holds.Killed, change: func(s *runtimeapi.ContainerStatus) { s.StartedAt = 0 }},
		"out of memory":                {state: holds.Killed, change: func(s *runtimeapi.ContainerStatus) { s.Reason = "OOMKilled" }},
		"running":                      {state: holds.Killed, change: func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_RUNNING }},
		"another pod":                  {state: holds.Killed, change: func(s *runtimeapi.ContainerStatus) { s.Labels[cri.LabelPodUID] = "other" }},
		"no pod":                       {state: holds.Killed, change: func(s *runtimeapi.ContainerStatus) { s.Labels = nil }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.hold("uid-1", tc.state, at)
			status := exited("uid-1", at)
			if tc.change != nil {
				tc.change(status)
			}
			original := &runtimeapi.ContainerStatusResponse{Status: status, Info: map[string]string{"info": "{}"}}
			sent := withUnknown(encode(t, original))
			r.runtime.Inject("ContainerStatus", fakecri.Fault{Raw: [][]byte{sent}})
			got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, "", encode(t, &runtimeapi.ContainerStatusRequest{ContainerId: "c1"}))
			if got.code != codes.OK || len(got.messages) != 1 {
				t.Fatalf("%+v", got)
			}
			if !tc.want {
				if !bytes.Equal(got.messages[0], sent) {
					t.Error("changed")
				}
				return
			}
			want := new(runtimeapi.ContainerStatusResponse)
			if err := proto.Unmarshal(sent, want); err != nil {
				t.Fatal(err)
			}
			want.Status.Reason, want.Status.Message = "Evicted", kubeletForm
			have := new(runtimeapi.ContainerStatusResponse)
			if err := proto.Unmarshal(got.messages[0], have); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(want, have) {
				t.Errorf("got %v\nwant %v", have, want)
			}
			if !bytes.HasSuffix(got.messages[0], payload("unknown")) {
				t.Error("the unknown field is lost")
			}
		})
	}
}

func TestReleasedWithoutAKillExplainsNothing(t *testing.T) {
	r := newRig(t, nil)
	at := time.Now()
	rec := r.hold("uid-1", holds.Released, at)
	rec.KilledAt = time.Time{}
	rec.ReleaseReason = "kill-failed"
	if err := r.writer.Update(rec); err != nil {
		t.Fatal(err)
	}
	sent := encode(t, &runtimeapi.ContainerStatusResponse{Status: exited("uid-1", at)})
	r.runtime.Inject("ContainerStatus", fakecri.Fault{Raw: [][]byte{sent}})
	got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, "", nil)
	if len(got.messages) != 1 || !bytes.Equal(got.messages[0], sent) {
		t.Error("changed")
	}
}

func TestSandboxStatusExplainsItsContainers(t *testing.T) {
	r := newRig(t, nil)
	at := time.Now()
	r.hold("uid-1", holds.Killed, at)
	alive := exited("uid-1", at)
	alive.State, alive.FinishedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, 0
	noLabels := exited("uid-1", at)
	noLabels.Labels = nil
	original := &runtimeapi.PodSandboxStatusResponse{
		Status:             &runtimeapi.PodSandboxStatus{Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "uid-1"}},
		ContainersStatuses: []*runtimeapi.ContainerStatus{exited("uid-1", at), alive, noLabels},
		Timestamp:          5,
	}
	sent := withUnknown(encode(t, original))
	r.runtime.Inject("PodSandboxStatus", fakecri.Fault{Raw: [][]byte{sent}})
	got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, "", nil)
	have, want := new(runtimeapi.PodSandboxStatusResponse), new(runtimeapi.PodSandboxStatusResponse)
	if err := proto.Unmarshal(got.messages[0], have); err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(sent, want); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		want.ContainersStatuses[i].Reason, want.ContainersStatuses[i].Message = "Evicted", kubeletForm
	}
	if !proto.Equal(want, have) {
		t.Errorf("got %v\nwant %v", have, want)
	}
}

func TestDecorationCanBeSwitchedOff(t *testing.T) {
	r := newRig(t, func(_ *rig, o *Options) { o.DecorateStatus = false })
	at := time.Now()
	r.hold("uid-1", holds.Killed, at)
	sent := encode(t, &runtimeapi.ContainerStatusResponse{Status: exited("uid-1", at)})
	r.runtime.Inject("ContainerStatus", fakecri.Fault{Raw: [][]byte{sent}})
	got := exchange(r.ctx(), r.through, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, "", nil)
	if len(got.messages) != 1 || !bytes.Equal(got.messages[0], sent) {
		t.Error("changed")
	}
}

// Lists and events carry the same statuses and are never edited.
func TestOtherAnswersWithStatusesStayAsTheyAre(t *testing.T) {
	r := newRig(t, nil)
	at := time.Now()
	r.hold("uid-1", holds.Killed, at)
	sent := encode(t, &runtimeapi.ContainerEventResponse{ContainersStatuses: []*runtimeapi.ContainerStatus{exited("uid-1", at)}})
	for _, method := range []string{runtimeapi.RuntimeService_GetContainerEvents_FullMethodName, runtimeapi.RuntimeService_ListContainers_FullMethodName} {
		r.runtime.Inject(method, fakecri.Fault{Raw: [][]byte{sent}})
		got := exchange(r.ctx(), r.through, method, "", nil)
		if len(got.messages) != 1 || !bytes.Equal(got.messages[0], sent) {
			t.Errorf("%s: changed", method)
		}
	}
}

func TestStatusMessageForms(t *testing.T) {
	base := holds.Record{Name: "hog", Signal: "memory.available", Threshold: 500 << 20, Available: 430 << 20, Usage: 900 << 20, Request: 100 << 20}
	small := base
	small.Usage, small.Request = 100<<20, 200<<20
	disk := base
	disk.Signal = "nodefs.available"
	odd := base
	odd.Available = 430<<20 + 1
	bad := base
	bad.Name = "ho\xffg"
	for want, rec := range map[string]holds.Record{
		kubeletForm: base,
		"The node was low on resource: memory. Threshold quantity: 500Mi, available: 430Mi. Pod hog was using 100Mi, request is 200Mi. ":                                                         small,
		"The node was low on resource: ephemeral-storage. Threshold quantity: 500Mi, available: 430Mi. Pod hog was using 900Mi, request is 100Mi, has larger consumption of ephemeral-storage. ": disk,
		"The node was low on resource: memory. Threshold quantity: 500Mi, available: 450887681. Pod hog was using 900Mi, request is 100Mi, has larger consumption of memory. ":                   odd,
		"The node was low on resource: memory. Threshold quantity: 500Mi, available: 430Mi. Pod ho\uFFFDg was using 900Mi, request is 100Mi, has larger consumption of memory. ":                 bad,
	} {
		if got := StatusMessage(rec); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestRefusalMessageIsConstant(t *testing.T) {
	rec := holds.Record{UID: "u-1", Namespace: "default", Name: "hog", Signal: "memory.available"}
	later := rec
	later.Available, later.Usage, later.Repeat, later.Decided = 1, 2, 3, time.Now()
	want := "pod default/hog (uid u-1) was evicted for memory.available by cri-evictd and is held until the pressure is over; see 'cri-evictd explain default/hog' on the node"
	if got := RefusalMessage(rec); got != want || RefusalMessage(later) != want {
		t.Errorf("got %q", got)
	}
}
