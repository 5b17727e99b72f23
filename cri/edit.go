package cri

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of the fields of ContainerStatus the editors look at.
const (
	statusState      = 3
	statusStartedAt  = 5
	statusFinishedAt = 6
	statusExitCode   = 7
	statusReason     = 10
	statusMessage    = 11
	statusLabels     = 12
)

// stateExited is CONTAINER_EXITED.
const stateExited = 2

// ContainerStatusView is what a status says about one container.
type ContainerStatusView struct {
	ID, PodUID string
	Exited     bool
	// StartedAt and FinishedAt are unix nanoseconds, 0 is never.
	StartedAt, FinishedAt int64
	ExitCode              int32
	Reason, Message       string
}

// Rewrite decides about one container: ok false leaves it as it is.
type Rewrite func(ContainerStatusView) (reason, message string, ok bool)

// EditContainerStatus gives rewrite the container of a ContainerStatusResponse
// and replaces its reason and message if wanted. Every other byte stays, also
// unknown fields and their order. edited is how many statuses were changed; if
// it is 0, out is resp itself. resp is never written to.
func EditContainerStatus(resp []byte, rewrite Rewrite) (out []byte, edited int, err error) {
	// A message field that comes twice is merged by its reader; nobody sends
	// that, and replacing one half of it would be wrong.
	count := 0
	err = walk(resp, func(f field) error {
		if f.isBytes(1) {
			count++
		}
		return nil
	})
	if err != nil || count != 1 {
		return resp, 0, wrap("ContainerStatusResponse", err)
	}
	out, edited, err = editElements(resp, 1, "", rewrite)
	return out, edited, wrap("ContainerStatusResponse", err)
}

// EditPodSandboxStatus does the same for all containers in a
// PodSandboxStatusResponse (runtimes with evented PLEG fill them in).
func EditPodSandboxStatus(resp []byte, rewrite Rewrite) (out []byte, edited int, err error) {
	var sandbox SandboxConfig
	err = walk(resp, func(f field) error {
		if !f.isBytes(1) {
			return nil
		}
		return walk(f.bytes, func(f field) error {
			if f.isBytes(2) {
				return sandbox.decodeMetadata(f.bytes)
			}
			return nil
		})
	})
	if err != nil {
		return resp, 0, wrap("PodSandboxStatusResponse", err)
	}
	out, edited, err = editElements(resp, 3, sandbox.UID, rewrite)
	return out, edited, wrap("PodSandboxStatusResponse", err)
}

// editElements edits each ContainerStatus in field num of b.
func editElements(b []byte, num protowire.Number, podUID string, rewrite Rewrite) ([]byte, int, error) {
	var out []byte
	edited, copied := 0, 0
	err := walk(b, func(f field) error {
		if !f.isBytes(num) {
			return nil
		}
		status, ok, err := editStatus(f.bytes, podUID, rewrite)
		if err != nil || !ok {
			return err
		}
		edited++
		out = append(out, b[copied:f.value]...)
		out = protowire.AppendBytes(out, status)
		copied = f.end
		return nil
	})
	if err != nil || edited == 0 {
		return b, 0, err
	}
	return append(out, b[copied:]...), edited, nil
}

// editStatus returns the ContainerStatus b with reason and message replaced, if
// rewrite wants that. The two new fields stand where the first of the old ones
// stood, or else where a writer in field order would have put them.
func editStatus(b []byte, podUID string, rewrite Rewrite) ([]byte, bool, error) {
	view, err := viewStatus(b, podUID)
	if err != nil {
		return nil, false, err
	}
	reason, message, ok := rewrite(view)
	if !ok {
		return nil, false, nil
	}
	out := make([]byte, 0, len(b)+len(reason)+len(message)+8)
	written := false
	write := func() {
		if written {
			return
		}
		written = true
		// Text that is not UTF-8 would make the whole answer unreadable.
		out = protowire.AppendTag(out, statusReason, protowire.BytesType)
		out = protowire.AppendString(out, strings.ToValidUTF8(reason, "\uFFFD"))
		out = protowire.AppendTag(out, statusMessage, protowire.BytesType)
		out = protowire.AppendString(out, strings.ToValidUTF8(message, "\uFFFD"))
	}
	err = walk(b, func(f field) error {
		if f.num >= statusReason {
			write()
		}
		if f.isBytes(statusReason) || f.isBytes(statusMessage) {
			return nil
		}
		out = append(out, b[f.start:f.end]...)
		return nil
	})
	write()
	return out, err == nil, err
}

// viewStatus decodes a ContainerStatus.
func viewStatus(b []byte, podUID string) (ContainerStatusView, error) {
	v := ContainerStatusView{PodUID: podUID}
	var labels map[string]string
	err := walk(b, func(f field) error {
		switch {
		case f.isBytes(1):
			v.ID = string(f.bytes)
		case f.isVarint(statusState):
			v.Exited = int32(f.varint) == stateExited
		case f.isVarint(statusStartedAt):
			v.StartedAt = int64(f.varint)
		case f.isVarint(statusFinishedAt):
			v.FinishedAt = int64(f.varint)
		case f.isVarint(statusExitCode):
			v.ExitCode = int32(f.varint)
		case f.isBytes(statusReason):
			v.Reason = string(f.bytes)
		case f.isBytes(statusMessage):
			v.Message = string(f.bytes)
		case f.isBytes(statusLabels):
			return addMapEntry(&labels, f.bytes)
		}
		return nil
	})
	if uid := labels[LabelPodUID]; uid != "" {
		v.PodUID = uid
	}
	return v, wrap("container status", err)
}
