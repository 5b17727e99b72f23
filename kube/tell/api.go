package tell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/cri-evictd/cri-evictd/kube/access"
)

// API is what is asked of the API server. Errors are those of client-go: a
// refusal is an apierrors.APIStatus. A dry run changes nothing.
type API interface {
	// Server is its URL.
	Server() string
	Pod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	// OwnPod returns any pod of the node that is no mirror, nil when there is none.
	OwnPod(ctx context.Context, node string) (*v1.Pod, error)
	// PatchStatus sends a strategic merge patch of pods/status.
	PatchStatus(ctx context.Context, namespace, name string, body []byte, dryRun bool) error
	// Evict and Delete are for the pod of this UID only; grace is in seconds.
	Evict(ctx context.Context, namespace, name string, uid types.UID, grace int64, dryRun bool) error
	Delete(ctx context.Context, namespace, name string, uid types.UID, grace int64, dryRun bool) error
	CreateEvent(ctx context.Context, e *v1.Event) error
	PatchEvent(ctx context.Context, namespace, name string, body []byte) error
}

// Connect returns the API server of a kubeconfig, see access.Connect. Nothing is
// sent yet.
func Connect(kubeconfig, userAgent string) (API, error) {
	c, err := access.Connect(kubeconfig, userAgent)
	if err != nil {
		return nil, err
	}
	return server{c}, nil
}

// server is the real one.
type server struct{ c *access.Client }

func (s server) Server() string { return s.c.Server }

func (s server) Pod(ctx context.Context, namespace, name string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := s.c.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(pod); err != nil {
		return nil, err
	}
	return pod, nil
}

// fewPods is how many are looked at to find one that is no mirror.
const fewPods = 20

func (s server) OwnPod(ctx context.Context, node string) (*v1.Pod, error) {
	list := &v1.PodList{}
	err := s.c.Get().Resource("pods").VersionedParams(&metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), Limit: fewPods,
	}, s.c.Params).Do(ctx).Into(list)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if !mirror(&list.Items[i]) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

func (s server) PatchStatus(ctx context.Context, namespace, name string, body []byte, dryRun bool) error {
	return dry(s.c.Patch(types.StrategicMergePatchType), dryRun).
		Namespace(namespace).Resource("pods").Name(name).SubResource("status").Body(body).Do(ctx).Error()
}

// deleteOptions are those of a deletion that only the pod of this UID may have.
func deleteOptions(uid types.UID, grace int64, dryRun bool) map[string]any {
	o := map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"gracePeriodSeconds": grace, "preconditions": map[string]any{"uid": uid},
	}
	if dryRun {
		o["dryRun"] = []string{metav1.DryRunAll}
	}
	return o
}

func (s server) Evict(ctx context.Context, namespace, name string, uid types.UID, grace int64, dryRun bool) error {
	options := deleteOptions(uid, grace, dryRun)
	return s.sendJSON(ctx, dry(s.c.Post(), dryRun).Namespace(namespace).Resource("pods").Name(name).SubResource("eviction"), map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata": map[string]any{"name": name, "namespace": namespace}, "deleteOptions": options,
	})
}

func (s server) Delete(ctx context.Context, namespace, name string, uid types.UID, grace int64, dryRun bool) error {
	return s.sendJSON(ctx, s.c.Delete().Namespace(namespace).Resource("pods").Name(name), deleteOptions(uid, grace, dryRun))
}

func (s server) CreateEvent(ctx context.Context, e *v1.Event) error {
	return s.c.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
}

func (s server) PatchEvent(ctx context.Context, namespace, name string, body []byte) error {
	return s.c.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("events").Name(name).Body(body).Do(ctx).Error()
}

// sendJSON sends what the scheme of the core group has no type for.
func (s server) sendJSON(ctx context.Context, r *rest.Request, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	return r.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(b).Do(ctx).Error()
}

func dry(r *rest.Request, yes bool) *rest.Request {
	if yes {
		r.Param("dryRun", metav1.DryRunAll)
	}
	return r
}

// refusal sorts the error of a request.
type refusal uint8

const (
	accepted      refusal = iota
	away                  // no answer, or one that says later
	unknownUser           // the credentials are not taken
	forbidden             // the right is missing
	notFound              // no such object
	conflict              // the pod of this name is another one
	later                 // this request is not to be had now: a budget, a conflict of versions
	notAcceptable         // this request will never be
)

// sortOut says what an error of the API means.
func sortOut(err error) refusal {
	switch code := statusCode(err); {
	case err == nil:
		return accepted
	case code == http.StatusUnauthorized:
		return unknownUser
	case code == http.StatusForbidden:
		return forbidden
	case code == http.StatusNotFound:
		return notFound
	case code == http.StatusConflict:
		return conflict
	case code == http.StatusTooManyRequests:
		return later
	case code >= 400 && code < 500:
		return notAcceptable
	}
	return away
}

// statusCode is that of the API server's answer, 0 without one.
func statusCode(err error) int {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		return int(s.Status().Code)
	}
	return 0
}
