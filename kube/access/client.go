// Package access makes a client of the API server from a kubeconfig.
package access

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client is for the core group.
type Client struct {
	rest.Interface
	// Params encodes options as query parameters.
	Params runtime.ParameterCodec
	// Server is the API server's URL.
	Server string
}

// Connect returns a client for the kubeconfig, which may be kubelet's own: a
// client certificate is read again when its file changes, and exec plugins are
// run, by client-go. Nothing is sent yet. There is no limit on the client's
// side: whoever asks keeps its own pace.
func Connect(kubeconfig, userAgent string) (*Client, error) {
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
	config.QPS = -1
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return &Client{Interface: client, Params: runtime.NewParameterCodec(scheme), Server: config.Host}, nil
}
