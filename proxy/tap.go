package proxy

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/holds"
)

// tap looks into one call: request, response and end are called in this order,
// by the goroutine of the call. Nothing in it can fail the call except the
// refusal request returns.
type tap struct {
	p      *Proxy
	method string
	kind   kind

	event     Event // what is known of the call so far
	uid       string
	sandboxID string    // of the request
	images    imageCall // what the call needs; begun once it is noted as under way
	begun     bool
	responded bool
	lost      bool // a message could not be read: the evictor must list anew
}

// newTap returns nil for calls that are not looked into: other methods, other
// encodings than protobuf.
func (p *Proxy) newTap(method string, k kind, subtype string) *tap {
	if k == other || (subtype != "" && subtype != "proto") {
		return nil
	}
	if (k == containerStatus || k == podSandboxStatus) && (!p.decorate.Load() || p.opts.Holds == nil) {
		return nil
	}
	return &tap{p: p, method: method, kind: k}
}

// guard runs f so that neither an error nor a panic in it reaches the call.
func (t *tap) guard(f func() error) {
	defer func() {
		if r := recover(); r != nil {
			t.lost = true
			t.p.panicked(t.method, r, debug.Stack())
		}
	}()
	if t.p.decodeHook != nil {
		t.p.decodeHook(t.method)
	}
	if err := f(); err != nil {
		t.lost = true
		t.p.stats.undecodable.Add(1)
		t.p.opts.Log.WithError(err).WithField("method", t.method).Debug("message not understood, passed on as it is")
	}
}

// request looks at the request and returns the refusal if its pod is held or not
// admitted.
func (t *tap) request(ctx context.Context, f *frame) (refused error) {
	t.guard(func() error {
		begin, err := t.decodeRequest(f.bytes())
		if t.kind == restorePod || err != nil && (t.kind == createContainer || t.kind == pullImage) {
			t.p.images.missed()
		}
		if err != nil {
			return err
		}
		if rec, held := t.held(); held {
			t.p.stats.refused.Add(1)
			refused = refusal(rec)
			t.p.opts.Log.WithField("method", t.method).WithField("pod", rec.Namespace+"/"+rec.Name).
				WithField("uid", rec.UID).WithField("decision", rec.ID).Info("refused: the pod is held")
			if begin == EventRunBegin {
				t.publish(EventRunRefused)
			}
			return nil
		}
		if refused = t.admit(ctx); refused != nil {
			return nil
		}
		switch {
		case len(t.images.names) == 0:
		case t.kind == imageStatus:
			t.p.images.asked(ctx, &t.images)
		default:
			t.p.images.begin(ctx, &t.images)
			t.begun = true
		}
		if begin != "" {
			t.publish(begin)
		}
		return nil
	})
	return refused
}

// decodeRequest fills in t.event; begin is the event to send now, if any.
func (t *tap) decodeRequest(b []byte) (begin string, err error) {
	switch t.kind {
	case runPodSandbox, restorePod:
		decode := cri.DecodeRunPodSandbox
		if t.kind == restorePod {
			decode = cri.DecodeRestorePod
		}
		c, err := decode(b)
		if err != nil {
			return "", err
		}
		t.uid = c.UID
		t.event = Event{
			Pod: podRef(c), Attempt: c.Attempt, CgroupParent: c.CgroupParent,
			ConfigSource: c.Annotations[configSourceAnnotation],
			Labels:       c.Labels, Annotations: keptAnnotations(c.Annotations),
		}
		return EventRunBegin, nil
	case createContainer:
		c, err := cri.DecodeCreateContainer(b)
		if err != nil {
			return "", err
		}
		t.uid, t.sandboxID = c.PodUID, c.SandboxID
		t.event = Event{
			SandboxID: c.SandboxID, ContainerName: c.Name, Image: c.Image, Attempt: c.Attempt,
			Labels: c.Labels, Annotations: keptAnnotations(c.Annotations), MountedImages: c.Mounted,
		}
		t.images.add(c.Image, c.UserImage)
		t.images.add(c.Mounted...)
		if c.PodUID != "" {
			t.event.Pod = &PodRef{Namespace: c.PodNamespace, Name: c.PodName, UID: c.PodUID}
		}
		if c.HasResources {
			t.event.OOMScoreAdj, t.event.MemoryLimit = &c.OOMScoreAdj, &c.MemoryLimit
		}
		return EventCreateBegin, nil
	case imageStatus:
		image, _, err := cri.DecodeImageRequest(b)
		t.images.add(image)
		return "", err
	case pullImage, removeImage:
		image, sandbox, err := cri.DecodeImageRequest(b)
		if err != nil {
			return "", err
		}
		t.event = Event{Image: image, Pod: podRef(sandbox)}
		if t.kind == pullImage {
			t.images.pull = true
			t.images.add(image)
			return EventPullBegin, nil
		}
		return "", nil
	case startContainer, stopContainer, removeContainer:
		id, err := cri.DecodeID(b)
		t.event = Event{ContainerID: id}
		return "", err
	case stopPodSandbox, removePodSandbox:
		id, err := cri.DecodeID(b)
		t.event = Event{SandboxID: id}
		return "", err
	}
	return "", nil
}

// held asks the holds file, for the gated methods only.
func (t *tap) held() (holds.Record, bool) {
	h := t.p.opts.Holds
	if h == nil {
		return holds.Record{}, false
	}
	switch t.kind {
	case runPodSandbox, restorePod, createContainer:
	default:
		return holds.Record{}, false
	}
	if t.uid != "" {
		if rec, ok := h.Held(t.uid); ok {
			return rec, true
		}
	}
	if t.sandboxID != "" {
		return h.HeldSandbox(t.sandboxID)
	}
	return holds.Record{}, false
}

// response looks at the first message of the answer and may rewrite it.
func (t *tap) response(f *frame) {
	if t.responded {
		return // not the unary call we know
	}
	t.responded = true
	switch t.kind {
	case runPodSandbox, restorePod:
		t.guard(func() (err error) {
			t.event.SandboxID, err = cri.DecodeRunPodSandboxResponse(f.bytes())
			return err
		})
	case createContainer:
		t.guard(func() (err error) {
			t.event.ContainerID, err = cri.DecodeCreateContainerResponse(f.bytes())
			return err
		})
	case pullImage:
		t.guard(func() (err error) {
			t.event.ImageID, err = cri.DecodePullImageResponse(f.bytes())
			return err
		})
	case containerStatus:
		t.rewrite(f, cri.EditContainerStatus)
	case podSandboxStatus:
		t.rewrite(f, cri.EditPodSandboxStatus)
	}
}

func (t *tap) rewrite(f *frame, edit func([]byte, cri.Rewrite) ([]byte, int, error)) {
	t.guard(func() error {
		out, edited, err := edit(f.bytes(), t.p.explain)
		if err != nil || edited == 0 {
			return err
		}
		t.p.stats.decorated.Add(1)
		f.replace(out)
		return nil
	})
}

// end tells the outcome, before the caller learns it.
func (t *tap) end(err error) {
	code := status.Code(err)
	if t.begun {
		t.p.images.end(&t.images, t.event.ImageID)
	}
	t.guard(func() error {
		if code == codes.OK {
			_, t.event.Held = t.held()
			if t.event.Held {
				t.p.stats.heldMeanwhile.Add(1)
			}
		}
		endType, done := t.outcome()
		if endType != "" {
			if code != codes.OK {
				t.event.Err = code.String()
			}
			t.publish(endType)
		}
		if done != "" && code == codes.OK {
			t.publish(done)
		}
		return nil
	})
	changes := t.kind != containerStatus && t.kind != podSandboxStatus && t.kind != imageStatus
	if changes && (t.lost || (t.kind == restorePod && code == codes.OK)) {
		// Something changed that the events do not fully tell.
		t.p.events.publish(Event{Type: EventDirty})
	}
}

// outcome names the event of the end of the call and that of its success.
func (t *tap) outcome() (end, done string) {
	switch t.kind {
	case runPodSandbox, restorePod:
		return EventRunEnd, EventSandboxStarted
	case createContainer:
		return EventCreateEnd, EventContainerCreated
	case pullImage:
		return EventPullEnd, ""
	case removeImage:
		return "", EventImageRemoved
	case startContainer:
		return "", EventContainerStarted
	case stopContainer:
		return "", EventContainerStopped
	case removeContainer:
		return "", EventContainerRemoved
	case stopPodSandbox:
		return "", EventSandboxStopped
	case removePodSandbox:
		return "", EventSandboxRemoved
	}
	return "", ""
}

func (t *tap) publish(typ string) {
	e := t.event
	e.Type = typ
	t.p.events.publish(e)
}

func podRef(c cri.SandboxConfig) *PodRef {
	if c.UID == "" {
		return nil
	}
	return &PodRef{Namespace: c.Namespace, Name: c.Name, UID: c.UID}
}
