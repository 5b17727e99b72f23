package apiwatch

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connect returns a client for the kubeconfig, which may be kubelet's own: a
// client certificate is read again when its file changes, and exec plugins are
// run, by client-go. Nothing is sent yet.
func Connect(kubeconfig, userAgent string) (Pods, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	// Only the types of the core group are known, which keeps what is in memory
	// small: client-go's own clientset registers those of every group.
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("kubernetes types: %w", err)
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &v1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.UserAgent = userAgent
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return restPods{client: client, params: runtime.NewParameterCodec(scheme)}, nil
}

// restPods are the pods behind a client of the core group.
type restPods struct {
	client rest.Interface
	params runtime.ParameterCodec
}

func (p restPods) List(ctx context.Context, opts metav1.ListOptions) (*v1.PodList, error) {
	list := &v1.PodList{}
	err := p.client.Get().Resource("pods").VersionedParams(&opts, p.params).Do(ctx).Into(list)
	return list, err
}

func (p restPods) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	return p.client.Get().Resource("pods").VersionedParams(&opts, p.params).Watch(ctx)
}
