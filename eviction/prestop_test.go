package eviction

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestParseHook(t *testing.T) {
	const ports = `[{"name":"web","containerPort":8080,"protocol":"TCP"}]`
	for _, c := range []struct {
		name, text string
		want       *hook
		fails      bool
	}{
		{"none", "", nil, false},
		{"null", "null", nil, false},
		{"exec", `{"exec":{"command":["/bin/sh","-c","drain"]}}`, &hook{exec: []string{"/bin/sh", "-c", "drain"}}, false},
		{"sleep", `{"sleep":{"seconds":5}}`, &hook{sleep: 5 * time.Second}, false},
		{"httpGet", `{"httpGet":{"path":"/bye","port":80,"scheme":"HTTPS","httpHeaders":[{"name":"X","value":"1"}]}}`,
			&hook{http: &httpHook{https: true, port: "80", path: "/bye", names: []string{"X"}, values: []string{"1"}}}, false},
		{"a named port", `{"httpGet":{"path":"bye","port":"web","host":"10.0.0.9","scheme":"HTTP"}}`,
			&hook{http: &httpHook{host: "10.0.0.9", port: "8080", path: "bye"}}, false},
		{"a port as text", `{"httpGet":{"port":"81"}}`, &hook{http: &httpHook{port: "81"}}, false},
		{"an unknown port", `{"httpGet":{"port":"nope"}}`, nil, true},
		{"port 0", `{"httpGet":{"port":0}}`, nil, true},
		{"port 70000", `{"httpGet":{"port":70000}}`, nil, true},
		{"no command", `{"exec":{}}`, nil, true},
		{"tcpSocket", `{"tcpSocket":{"port":80}}`, nil, true},
		{"a negative sleep", `{"sleep":{"seconds":-1}}`, nil, true},
		{"an endless sleep", `{"sleep":{"seconds":9223372036854775807}}`, nil, true},
		{"cut off", `{"exec":{"comm`, nil, true},
		{"another type", `[1]`, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseHook(map[string]string{preStopAnnotation: c.text, portsAnnotation: ports})
			if err != nil != c.fails || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	if _, err := parseHook(map[string]string{preStopAnnotation: `{"tcpSocket":{"port":80}}`}); !errors.Is(err, errNoHook) {
		t.Errorf("tcpSocket: %v", err)
	}
}

func FuzzParseHook(f *testing.F) {
	f.Add(`{"exec":{"command":["a"]}}`, "")
	f.Add(`{"httpGet":{"port":"web","path":"/x","host":"::1"}}`, `[{"name":"web","containerPort":1}]`)
	f.Add(`{"sleep":{"seconds":1}}`, "")
	f.Add(`null`, `{`)
	f.Fuzz(func(t *testing.T, text, ports string) {
		h, err := parseHook(map[string]string{preStopAnnotation: text, portsAnnotation: ports})
		if err != nil || h == nil {
			return
		}
		if h.sleep < 0 || h.sleep > maxGrace {
			t.Errorf("sleeps %s", h.sleep)
		}
		if h.exec != nil && len(h.exec) == 0 || h.kind() == "" {
			t.Error("an empty hook")
		}
		if h.http != nil {
			h.http.url("10.0.0.1")
		}
	})
}

func TestHookURL(t *testing.T) {
	for want, h := range map[string]httpHook{
		"http://10.0.0.1:80/x":   {port: "80", path: "/x"},
		"https://10.0.0.1:443/":  {port: "443", https: true},
		"http://[fd00::1]:80/x":  {port: "80", path: "x", host: "fd00::1"},
		"http://10.0.0.1:80/a?b": {port: "80", path: "/a?b"},
	} {
		if got := h.url("10.0.0.1"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := (&httpHook{port: "80"}).url(""); got != "http://127.0.0.1:80/" {
		t.Errorf("on the host's network: %s", got)
	}
}

func TestGraceFor(t *testing.T) {
	for _, c := range []struct {
		pod     string
		longest time.Duration
		want    time.Duration
	}{
		{"3600", 30 * time.Second, 30 * time.Second}, // bugs.md B19
		{"10", 30 * time.Second, 10 * time.Second},
		{"", 30 * time.Second, 30 * time.Second},
		{"no number", 30 * time.Second, 30 * time.Second},
		{"-5", 30 * time.Second, 30 * time.Second},
		{"1", 30 * time.Second, 2 * time.Second},
		{"0", 30 * time.Second, 2 * time.Second},
		{"30", 0, 2 * time.Second},
		{"99999999999", maxGrace, maxGrace},
	} {
		if got := graceFor(map[string]string{graceAnnotation: c.pod}, c.longest); got != c.want {
			t.Errorf("pod %q, at most %s: %s, want %s", c.pod, c.longest, got, c.want)
		}
	}
	if got := seconds(1500 * time.Millisecond); got != 2 {
		t.Errorf("1.5 s became %d s", got)
	}
}
