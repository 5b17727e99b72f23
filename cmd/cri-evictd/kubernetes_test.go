package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cri-evictd/cri-evictd/eviction"
	"github.com/cri-evictd/cri-evictd/internal/fakecri"
	"github.com/cri-evictd/cri-evictd/kube/tell"
)

func TestKubeconfigOfKubelet(t *testing.T) {
	for line, want := range map[string]string{
		"/usr/bin/kubelet --v=2 --kubeconfig=/etc/kubernetes/kubelet.conf": "/etc/kubernetes/kubelet.conf",
		"kubelet -kubeconfig /k":                 "/k",
		"/hyperkube kubelet --kubeconfig /k --x": "/k",
		"kubelet --bootstrap-kubeconfig=/b":      "",
		"kubelet --kubeconfig":                   "",
		"kubelet":                                "",
		"":                                       "",
		"kubectl --kubeconfig=/home/me/config get": "",
		"grep --kubeconfig=/k /x":                  "",
	} {
		if got := kubeconfigOf([]byte(strings.ReplaceAll(line, " ", "\x00") + "\x00")); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// What is missing without a kubeconfig is said plainly, in a cluster.
func TestCheckKubernetes(t *testing.T) {
	n := newNode(t, v2Tree, fakecri.Options{})
	kubeconfig := n.write("kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`)
	for _, tt := range []struct {
		config, level, text string
		code                int
	}{
		{"", levelOK, "kubeconfig is not set: in a cluster", exitOK},
		{"reportMode: none\n", levelWarning, "their disk volumes and memory emptyDirs are not freed", exitOK},
		{"kubeconfig: " + n.path("none") + "\n", levelError, "no such file", exitProblem},
		{"kubeconfig: " + kubeconfig + "\n", levelWarning, "cannot be asked; evictions would be queued", exitOK},
	} {
		code, fs := n.check(n.config(tt.config))
		if code != tt.code {
			t.Errorf("%q: exit %d", tt.config, code)
		}
		expect(t, n, fs, tt.level, "kubernetes", tt.text)
	}
}

func TestTellingText(t *testing.T) {
	for want, now := range map[string]*eviction.TellingNow{
		"not told of evictions (no kubeconfig, or reportMode none)":                                                     nil,
		"no connection yet, by not known yet, 0 told, 0 queued, 0 being verified":                                       {Mode: "status", Node: "n"},
		"https://x as n, by status, 3 told, 0 queued, 1 being verified":                                                 {Server: "https://x", Node: "n", Way: "status", Reachable: true, Verifying: 1, Told: []eviction.ToldCount{{Count: 2}, {Count: 1}}},
		"https://x as n, by status, 0 told, 2 queued, 0 being verified, the oldest for 1m0s, does not answer: no route": {Server: "https://x", Node: "n", Way: "status", Queued: 2, OldestAge: time.Minute, Problem: "no route"},
	} {
		if got := tellingText(now); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}

// Every outcome that a telling can have is told in words.
func TestToldText(t *testing.T) {
	at := time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)
	for _, outcome := range append(tell.Outcomes(), "") {
		if got := toldText(&eviction.Telling{Outcome: outcome, Event: true}); got == outcome || got == "" {
			t.Errorf("%q: no words", outcome)
		}
	}
	for want, x := range map[string]eviction.Telling{
		"not told yet; its event is not sent yet": {},
		"told, and watched for kubelet's overwriting it (by status, 2 requests, the last 2026-11-30T04:00:00Z); its event is not sent yet": {Way: "status", Requests: 2, Asked: at},
		"Failed, reason Evicted (by status, 1 requests, the last 2026-11-30T04:00:00Z)":                                                    {Way: "status", Requests: 1, Asked: at, Outcome: tell.Told, Event: true},
	} {
		if got := toldText(&x); got != want {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}
