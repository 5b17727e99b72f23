package apiwatch

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cri-evictd/cri-evictd/kube/access"
)

// Connect returns the pods behind the kubeconfig's API server, see
// access.Connect.
func Connect(kubeconfig, userAgent string) (Pods, error) {
	client, err := access.Connect(kubeconfig, userAgent)
	if err != nil {
		return nil, err
	}
	return restPods{client}, nil
}

// restPods are the pods behind a client of the core group.
type restPods struct {
	client *access.Client
}

func (p restPods) List(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error) {
	list := &v1.PodList{}
	err := p.client.Get().Resource("pods").VersionedParams(&opts, p.client.Params).Do(ctx).Into(list)
	return list, err
}

func (p restPods) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return p.client.Get().Resource("pods").VersionedParams(&opts, p.client.Params).Watch(ctx)
}
