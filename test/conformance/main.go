// Command conformance runs critest directly on a private containerd and then
// through cri-evictd, with the same images and the same seed. A spec that passes
// directly and does not pass through the proxy, skipping included, is a failure.
//
// It needs root and Debian 12, gets everything else itself (internal/lab's
// cache), changes nothing of the host's network, and leaves nothing behind but
// the cache and its logs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/cri-evictd/cri-evictd/internal/lab"
)

// fewest is how many specs must pass directly for a comparison to say
// something: 124 of 137 do on a Debian 12 without AppArmor.
const fewest = 118

type options struct {
	binary, module, command, out string
	focus                        string
	seed                         int64
	inside                       string // scratch folder; set for the process in its namespaces
}

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/cri-evictd", "the cri-evictd to put in between")
	flag.StringVar(&o.command, "command", "serve", "serve or proxy")
	flag.StringVar(&o.module, "critest", "test/conformance/critest", "the module that pins critest")
	flag.StringVar(&o.out, "out", "bin/conformance", "folder for logs and reports")
	flag.Int64Var(&o.seed, "seed", 1, "order of the specs, the same in both runs")
	flag.StringVar(&o.focus, "focus", "", "regular expression of the specs to run; empty: all")
	flag.StringVar(&o.inside, "inside", "", "for its own use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, o)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, o options) int {
	stage := outside
	if o.inside != "" {
		stage = inside
	}
	code, err := stage(ctx, o)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		fmt.Println("conformance: interrupted")
		return 130
	case err != nil:
		fmt.Println("conformance:", err)
		return 1
	}
	return code
}

// outside gets the programs and runs this program again in its namespaces. What
// that one leaves, also by being killed, is removed here.
func outside(ctx context.Context, o options) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("needs root: it runs a containerd with containers")
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return 1, err
	}
	dir, remove, err := lab.NewScratch()
	if err != nil {
		return 1, err
	}
	defer func() {
		remove()
		if left := lab.Leftovers(dir); len(left) > 0 {
			code, err = 1, errors.Join(err, fmt.Errorf("left behind:\n%s", strings.Join(left, "\n")))
		}
	}()
	began := time.Now()
	p, err := ensure(ctx, os.Stdout, o.module, dir)
	if err != nil {
		return 1, err
	}
	if p.Binary, err = filepath.Abs(o.binary); err != nil {
		return 1, err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return 1, err
	}
	if err := os.WriteFile(filepath.Join(dir, "programs.json"), body, 0o600); err != nil {
		return 1, err
	}
	took("programs", began)
	code, err = isolate([]string{"-inside", dir, "-command", o.command, "-out", o.out, "-seed", fmt.Sprint(o.seed), "-focus", o.focus})
	if err == nil && code == 0 {
		fmt.Printf("conformance: %.0f s in all\n", time.Since(began).Seconds())
	}
	return code, err
}

// inside does the work, in namespaces of its own.
func inside(ctx context.Context, o options) (code int, err error) {
	r := &rig{dir: o.inside, out: o.out, seed: o.seed, focus: o.focus}
	body, err := os.ReadFile(filepath.Join(r.dir, "programs.json"))
	if err != nil {
		return 1, err
	}
	if err := json.Unmarshal(body, &r.programs); err != nil {
		return 1, err
	}
	defer func() {
		began := time.Now()
		if left := r.takeDown(); len(left) > 0 {
			code, err = 1, errors.Join(err, fmt.Errorf("left behind:\n%s", strings.Join(left, "\n")))
		}
		took("clean-up", began)
	}()
	return r.compare(ctx, o.command)
}

// compare runs critest twice and tells the difference.
func (r *rig) compare(ctx context.Context, command string) (int, error) {
	began := time.Now()
	if err := r.set(ctx); err != nil {
		return 1, err
	}
	took("containerd, registry, network", began)

	began = time.Now()
	direct, err := r.critest(ctx, "direct", r.ctd.Socket, r.focus)
	if err != nil {
		return 1, err
	}
	took("critest directly: "+summary(direct), began)
	if n := count(direct)[passed]; n < fewest && r.focus == "" {
		return 1, fmt.Errorf("only %d specs pass directly, %d are expected: see %s", n, fewest, r.out)
	}

	began = time.Now()
	if err := r.reset(ctx); err != nil {
		return 1, err
	}
	if err := r.startDaemon(ctx, command); err != nil {
		return 1, err
	}
	took("reset, cri-evictd "+command, began)

	began = time.Now()
	proxied, err := r.critest(ctx, "proxy", r.daemon.Socket, r.focus)
	if err != nil {
		return 1, err
	}
	took("critest through the proxy: "+summary(proxied), began)
	return r.judge(ctx, compare(direct, proxied))
}

// judge prints the differences; 1 if one of them is a regression or the proxy
// itself had a problem.
func (r *rig) judge(ctx context.Context, differences []difference) (int, error) {
	s, err := r.daemon.status(ctx)
	if err != nil {
		return 1, fmt.Errorf("the proxy's status: %w", err)
	}
	names, calls := methods(s)
	fmt.Printf("conformance: %d CRI methods, %d calls through the proxy\n", names, calls)

	code := 0
	if s.Panics > 0 || s.Undecodable > 0 || s.Refused > 0 || s.Decorated > 0 {
		fmt.Printf("conformance: FAILED: the proxy had %d panics, %d messages it could not decode, refused %d and decorated %d, all of which must be 0\n",
			s.Panics, s.Undecodable, s.Refused, s.Decorated)
		code = 1
	}
	for _, d := range differences {
		word := "differs"
		if d.regression() {
			word = "REGRESSION"
			if d.flaky() {
				if word, err = r.again(ctx, d.Name); err != nil {
					return 1, err
				}
			}
		}
		if word == "REGRESSION" {
			code = 1
		}
		fmt.Printf("conformance: %s: %s directly, %s through the proxy: %s\n    %.600s\n", word, d.Direct, d.Proxied, d.Name, d.Reason)
	}
	if code == 0 {
		fmt.Println("conformance: every spec that passes directly passes through the proxy")
	} else {
		fmt.Printf("conformance: FAILED; logs and reports are in %s\n", r.out)
	}
	return code, nil
}

// again runs a spec that is known to flip, through the proxy and directly in
// turn. It is a regression unless it passes through the proxy once, or does not
// pass directly once.
func (r *rig) again(ctx context.Context, name string) (string, error) {
	const tries = 4
	for i := range tries {
		for _, way := range []struct {
			word, socket string
			excuses      bool // what the spec has to do: pass or not
		}{{"proxy", r.daemon.Socket, true}, {"direct", r.ctd.Socket, false}} {
			began := time.Now()
			results, err := r.critest(ctx, fmt.Sprintf("again-%d-%s", i+1, way.word), way.socket, regexp.QuoteMeta(name)+"$")
			if err != nil {
				return "", err
			}
			took("known to flip, again, "+way.word+": "+summary(results), began)
			if len(results) != 1 {
				return "", fmt.Errorf("%d specs, not one, are called %q", len(results), name)
			}
			if (results[0].State == passed) == way.excuses {
				return "flips by itself, as is known (again, " + way.word + ": " + results[0].State + ")", nil
			}
		}
	}
	return "REGRESSION", nil
}

func summary(results []result) string {
	n := count(results)
	return fmt.Sprintf("%d specs, %d passed, %d skipped, %d other", len(results), n[passed], n[skipped], len(results)-n[passed]-n[skipped])
}

func took(what string, began time.Time) {
	fmt.Printf("conformance: %s: %.1f s\n", what, time.Since(began).Seconds())
}
