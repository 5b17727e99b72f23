package eviction

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Annotations that kubelet puts on containers (Kubernetes 1.37,
// pkg/kubelet/kuberuntime/labels.go).
const (
	preStopAnnotation = "io.kubernetes.container.preStopHandler"
	graceAnnotation   = "io.kubernetes.pod.terminationGracePeriod"
	portsAnnotation   = "io.kubernetes.container.ports"
)

// hook is a preStop hook; one of the three is set.
type hook struct {
	exec  []string
	sleep time.Duration
	http  *httpHook
}

// kind names it for the reader.
func (h *hook) kind() string {
	switch {
	case h.exec != nil:
		return "exec"
	case h.http != nil:
		return "httpGet"
	}
	return "sleep"
}

// httpHook is a preStop hook of kind httpGet. Host is empty for the pod's own
// address.
type httpHook struct {
	https         bool
	host, port    string
	path          string
	names, values []string // of the headers
}

// lifecycleHandler is the part of core/v1 LifecycleHandler that is looked at.
type lifecycleHandler struct {
	Exec *struct {
		Command []string `json:"command"`
	} `json:"exec"`
	HTTPGet *struct {
		Path        string          `json:"path"`
		Port        json.RawMessage `json:"port"` // a number or a name
		Host        string          `json:"host"`
		Scheme      string          `json:"scheme"`
		HTTPHeaders []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"httpHeaders"`
	} `json:"httpGet"`
	Sleep *struct {
		Seconds int64 `json:"seconds"`
	} `json:"sleep"`
}

// errNoHook: there is a handler, and it is none that kubelet runs either
// (tcpSocket).
var errNoHook = errors.New("not an exec, httpGet or sleep hook")

// parseHook reads a container's preStop hook from its annotations; nil when it
// has none.
func parseHook(annotations map[string]string) (*hook, error) {
	text := annotations[preStopAnnotation]
	if text == "" || text == "null" {
		return nil, nil
	}
	var l lifecycleHandler
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", preStopAnnotation, err)
	}
	switch {
	case l.Exec != nil && len(l.Exec.Command) > 0:
		return &hook{exec: l.Exec.Command}, nil
	case l.HTTPGet != nil:
		port, err := hookPort(l.HTTPGet.Port, annotations[portsAnnotation])
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", preStopAnnotation, err)
		}
		h := &httpHook{
			https: strings.EqualFold(l.HTTPGet.Scheme, "https"),
			host:  l.HTTPGet.Host, port: port, path: l.HTTPGet.Path,
		}
		for _, x := range l.HTTPGet.HTTPHeaders {
			h.names, h.values = append(h.names, x.Name), append(h.values, x.Value)
		}
		return &hook{http: h}, nil
	case l.Sleep != nil:
		if l.Sleep.Seconds < 0 || l.Sleep.Seconds > int64(maxGrace/time.Second) {
			return nil, fmt.Errorf("annotation %s: sleep of %d seconds", preStopAnnotation, l.Sleep.Seconds)
		}
		return &hook{sleep: time.Duration(l.Sleep.Seconds) * time.Second}, nil
	}
	return nil, fmt.Errorf("annotation %s: %w", preStopAnnotation, errNoHook)
}

// hookPort resolves a port that may be the name of one of the container's.
func hookPort(port json.RawMessage, ports string) (string, error) {
	var n int
	if json.Unmarshal(port, &n) != nil {
		var text string
		err := json.Unmarshal(port, &text)
		if err != nil {
			return "", fmt.Errorf("port: %w", err)
		}
		if n, err = strconv.Atoi(text); err != nil {
			if n, err = namedPort(text, ports); err != nil {
				return "", err
			}
		}
	}
	if n <= 0 || n > 65535 {
		return "", fmt.Errorf("port %d", n)
	}
	return strconv.Itoa(n), nil
}

func namedPort(name, ports string) (int, error) {
	var list []struct {
		Name          string `json:"name"`
		ContainerPort int    `json:"containerPort"`
	}
	if ports != "" {
		if err := json.Unmarshal([]byte(ports), &list); err != nil {
			return 0, fmt.Errorf("annotation %s: %w", portsAnnotation, err)
		}
	}
	for _, p := range list {
		if p.Name == name {
			return p.ContainerPort, nil
		}
	}
	return 0, fmt.Errorf("no port is named %q", name)
}

// url is where the hook asks; podIP is empty for a pod on the host's network.
func (h *httpHook) url(podIP string) string {
	scheme := "http"
	if h.https {
		scheme = "https"
	}
	host := h.host
	if host == "" {
		host = podIP
	}
	if host == "" {
		host = "127.0.0.1"
	}
	path := h.path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return scheme + "://" + net.JoinHostPort(host, h.port) + path
}

const (
	// leastGrace is what every container gets between SIGTERM and SIGKILL in a
	// soft eviction, as kubelet's minimumGracePeriodInSeconds.
	leastGrace = 2 * time.Second
	// maxGrace bounds what a pod may have written; 0x7fffffff seconds is
	// evictionMaxPodGracePeriod's own limit.
	maxGrace = (1<<31 - 1) * time.Second
)

// podGrace is the pod's terminationGracePeriodSeconds; known is false when it was
// not told.
func podGrace(annotations map[string]string) (grace time.Duration, known bool) {
	n, err := strconv.ParseInt(annotations[graceAnnotation], 10, 64)
	if err != nil || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, int64(maxGrace/time.Second))) * time.Second, true
}

// graceFor is the grace of a soft eviction (Kubernetes 1.37,
// pkg/kubelet/eviction/eviction_manager.go): the smaller of
// evictionMaxPodGracePeriod and the pod's own where that is known, and at least
// leastGrace.
func graceFor(annotations map[string]string, longest time.Duration) time.Duration {
	g := longest
	if own, known := podGrace(annotations); known {
		g = min(g, own)
	}
	return max(g, leastGrace)
}
