package cluster

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// line is one line of kubelet's log (klog's format).
type line struct {
	level byte // I, W, E or F
	file  string
	text  string
}

var klogLine = regexp.MustCompile(`^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ([^:]+):\d+\] (.*)$`)

// parseLog reads what kubelet wrote from a place in its log on. Lines of another
// form, such as what follows a line of several, are left out.
func parseLog(b []byte) []line {
	var out []line
	scan := bufio.NewScanner(bytes.NewReader(b))
	scan.Buffer(nil, 16*mi)
	for scan.Scan() {
		if m := klogLine.FindStringSubmatch(scan.Text()); m != nil {
			out = append(out, line{level: m[1][0], file: m[2], text: m[3]})
		}
	}
	return out
}

// logged returns kubelet's errors and warnings since a place in its log.
func (s *stage) logged(since int64) []line {
	s.t.Helper()
	b, err := os.ReadFile(s.kubelet.LogFile)
	if err != nil {
		s.t.Fatal(err)
	}
	return slices.DeleteFunc(parseLog(b[min(since, int64(len(b))):]), func(l line) bool { return l.level == 'I' })
}

// logSize is the place to read from later.
func (s *stage) logSize() int64 {
	s.t.Helper()
	info, err := os.Stat(s.kubelet.LogFile)
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Size()
}

// directErrors are the kinds of warnings and errors that kubelet logs while pods
// come and go on the runtime itself, from `make soak`, which finds them anew.
//
//go:embed testdata/direct-errors.txt
var directErrors string

// usual are the kinds in directErrors, and three more. Two come of the machine: a slow
// one, and other kubelets on it, because kubelet's folder of links to logs is one for
// all. The third is the second half of one of directErrors: kubelet has two places that
// remove containers, and where the runtime refuses one because the other is at it,
// the collector says so as well.
func usual() map[string]int {
	known := map[string]int{
		"E kubelet.go Housekeeping took longer than expected: housekeeping took too long":                                                                                       1,
		"E kuberuntime_gc.go Failed to remove container log dead symlink: remove /…: no such file or directory":                                                                 1,
		"E kuberuntime_gc.go Failed to remove container: rpc error: code = Unknown desc = failed to set removing state for container …: container is already in removing state": 1,
	}
	for kind := range strings.Lines(directErrors) {
		known[strings.TrimSuffix(kind, "\n")]++
	}
	return known
}

// beyondRefusal returns the lines about a pod that tell of more than a refused
// RunPodSandbox, and that kubelet does not write of pods that just come and go. Of
// the refusal it tells four times, each time with our text.
func beyondRefusal(lines []line, pod *v1.Pod) []line {
	known := usual()
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool {
		about := strings.Contains(l.text, string(pod.UID)) || strings.Contains(l.text, pod.Namespace+"/"+pod.Name+`"`)
		return !about || known[l.kind()] > 0 || strings.Contains(l.text, refusal+pod.Namespace+"/"+pod.Name+" ")
	})
}

// churnPrefix begins the names of pods that just come and go.
const churnPrefix = "churn-"

var podOfLine = regexp.MustCompile(`\bdefault/([a-z0-9.-]+)`)

// refusal is in each line about a sandbox that we refused.
const refusal = "code = ResourceExhausted desc = pod "

// ofScenario: the line is about a pod of a scenario, or about one that came while
// a scenario was short of something.
func (l line) ofScenario() bool {
	m := podOfLine.FindStringSubmatch(l.text)
	return m != nil && !strings.HasPrefix(m[1], churnPrefix) || strings.Contains(l.text, refusal)
}

// illegalTransition is what kubelet says of each pod that is Failed by others than
// itself and whose containers all ended with 0.
const illegalTransition = `"Pod attempted illegal phase transition"`

// What differs between two lines that tell the same: IDs, names, numbers, times.
var (
	quoted  = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	paths   = regexp.MustCompile(`(/[^/\s"\]:,]+){2,}`)
	variant = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27,}|\b[0-9a-f]{12,64}\b|\d[\d.:]*[a-zµ]*`)
)

// kind is what a line tells, without what differs from one time to the next: its
// file, its message, and the words of its error.
func (l line) kind() string {
	message, rest := l.text, ""
	if strings.HasPrefix(message, `"`) {
		if end := strings.Index(message[1:], `"`); end >= 0 {
			message, rest = message[1:1+end], message[end+2:]
		}
	}
	problem := ""
	if i := strings.Index(rest, ` err=`); i >= 0 {
		problem = rest[i+5:]
		if prefix, err := strconv.QuotedPrefix(problem); err == nil {
			problem, _ = strconv.Unquote(prefix) // it is one
		}
		problem = quoted.ReplaceAllString(problem, "…")
	}
	text := fmt.Sprintf("%c %s %s", l.level, l.file, message)
	if problem != "" {
		text += ": " + problem
	}
	return variant.ReplaceAllString(paths.ReplaceAllString(text, "/…"), "#")
}

// kinds counts lines by kind.
func kinds(lines []line) map[string]int {
	out := map[string]int{}
	for _, l := range lines {
		out[l.kind()]++
	}
	return out
}
