package tell

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// waysFrom lists the ways to try when one is configured, the best first: what is
// permitted less is never replaced by what is permitted more.
func waysFrom(mode string) []string {
	all := []string{ByStatus, ByEvict, ByDelete}
	for i, w := range all {
		if w == mode {
			return all[i:]
		}
	}
	return nil
}

// Nobody's name and UID: a right can be asked for without a pod, because the API
// server judges it before it looks for one.
const (
	nobodyNamespace = "default"
	nobodyName      = "cri-evictd-probe"
	nobodyUID       = types.UID("00000000-0000-0000-0000-000000000000")
)

// Probe asks, by dry runs, which way this identity may tell, beginning with
// mode. fallback says what is not permitted, and so why it may be another one
// than mode; way is None when nothing is permitted. An error says that there was no answer to go by.
func Probe(ctx context.Context, api API, mode, node string, now time.Time) (way, fallback string, err error) {
	var why []string
	pod, err := api.OwnPod(ctx, node)
	switch sortOut(err) {
	case accepted:
	case forbidden, notFound, notAcceptable:
		// It may be allowed to tell all the same; a node that may not list these
		// pods is another one.
		pod, why = nil, []string{fmt.Sprintf("the pods of node %q may not be listed (is nodeName right?): %v", node, err)}
	default:
		return "", "", fmt.Errorf("list pods of node %q: %w", node, err)
	}
	for _, w := range waysFrom(mode) {
		err := try(ctx, api, w, pod, now)
		switch sortOut(err) {
		case accepted, notFound, conflict, later:
			// Whoever is told that there is no such pod may ask about pods.
			return w, strings.Join(why, "; "), nil
		case forbidden, notAcceptable:
			why = append(why, fmt.Sprintf("%s is refused: %v", w, err))
		default:
			return "", "", fmt.Errorf("%s: %w", w, err)
		}
	}
	return None, strings.Join(why, "; "), nil
}

// try asks for one way without effect: by a dry run and, where an object would be
// lost if that were ignored, for a UID that nobody has.
func try(ctx context.Context, api API, way string, pod *v1.Pod, now time.Time) error {
	namespace, name := nobodyNamespace, nobodyName
	if pod != nil {
		namespace, name = pod.Namespace, pod.Name
	}
	switch way {
	case ByEvict:
		return api.Evict(ctx, namespace, name, nobodyUID, 1, true)
	case ByDelete:
		return api.Delete(ctx, namespace, name, nobodyUID, 1, true)
	}
	uid := nobodyUID
	if pod != nil {
		uid = pod.UID
	}
	body, err := evictedPatch(uid, 0, 0, "probe", pod, now)
	if err != nil {
		return err
	}
	return api.PatchStatus(ctx, namespace, name, body, true)
}
