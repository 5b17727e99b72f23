// Command configdoc writes docs/configuration.md:
//
//	go run ./internal/configdoc > docs/configuration.md
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/eviction"
)

func main() {
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "configdoc:", err)
		os.Exit(1)
	}
}

// write writes the page.
func write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, intro, config.DefaultPath, config.APIVersion, config.Kind)
	table(&b, config.Fields())
	b.WriteString(thresholds)
	for _, s := range eviction.Signals() {
		fmt.Fprintf(&b, "* `%s`\n", s)
	}
	b.WriteString(garbage)
	b.WriteString(reload)
	_, err := io.WriteString(out, b.String())
	return err
}

func table(b *strings.Builder, fields []config.Field) {
	b.WriteString("| key | default | unit | bounds | reload | meaning |\n|---|---|---|---|---|---|\n")
	for _, f := range fields {
		reload := "yes"
		if f.NeedsRestart() {
			reload = "restart"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", f.Key, cell(f.Default), cell(f.Unit), cell(f.Bounds), reload, cell(f.Doc))
	}
}

// cell keeps a text within its cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

const intro = `# Configuration

<!-- Made by go run ./internal/configdoc > docs/configuration.md; a test fails when it is not current. -->

` + "`serve`, `proxy`, `evict` and `check` read one YAML file, `%s` or the one of `--config`. It begins with" + `

` + "```yaml\napiVersion: %s\nkind: %s\n```" + `

No other key is needed. Unknown keys, keys written twice and more than one YAML document are errors, and so is every value
outside its bounds; all errors are told at once, each with the key, the value and what would be right. ` + "`null`" + ` is as if the
key were not written. Without the file at the default path the defaults apply.

` + "With a broken file `serve` and `proxy` go on forwarding calls, at the addresses that are right in it and the defaults for the\nothers; nothing is evicted and no hold is enforced until it is corrected. `evict` does not start." + ` ` + "`cri-evictd check`" + ` tells
what is wrong beforehand.

A socket is written ` + "`unix:///path`, `unix:/path` or `/path`" + `. A duration is written as in ` + "`90s`, `5m`, `1h30m`" + `.

`

const thresholds = `
## Thresholds

A threshold is a quantity (` + "`500Mi`, `1.5Gi`, `104857600`" + `) or a percentage of the capacity (` + "`5%`, `7.5%`" + `, exact, rounded down),
and is met when what is available lies strictly below it. ` + "`\"0%\"`" + ` turns the signal off. A signal that is not written keeps
its default: writing one does not turn the others off, unlike kubelet's evictionHard.

` + "`memory.available: auto`" + ` is the smaller of 10 % of the memory and the largest of 500Mi, 2 % of the memory and
1.5 x min_free_kbytes + 256Mi; where kubelet's own hard threshold is known (` + "`kubeletConfig`" + `), at least kubelet's plus the larger
of 100Mi and 10 % of it.

` + "`allocatableMemory.available`" + ` is the limit of the cgroup that all pods share less what they use. Unless it is written it has the
value and the minimum reclaim of ` + "`memory.available`" + `, as in kubelet, and a percentage is one of that limit. Where kubelet does not
limit the pods together the signal does not exist.

A soft threshold (` + "`evictionSoft`" + `) evicts only after it was met for its ` + "`evictionSoftGracePeriod`" + ` without a break, only pods that use
more than they asked for, and with their own termination grace, at most ` + "`evictionMaxPodGracePeriod`" + `. Each soft signal needs a grace
period. One that is not above the hard threshold never acts first; a warning says so.

The signals are kubelet's:

`

const garbage = `
## Dead containers and unused images

Before a pod has to go for disk or inodes, what nobody needs is removed: dead containers (older ones than the last of their name,
those of pods that are gone or have finished, empty sandboxes), then unused images, the one that was not used for the longest time
first, one by one until enough is free. In the background unused images go from ` + "`imageGCHighThresholdPercent`" + ` down to
` + "`imageGCLowThresholdPercent`" + `, and those not used for ` + "`imageMaximumGCAge`" + `. ` + "`cri-evictd gc --dry-run`" + ` shows what would
go and why the rest stays.

An image is never removed that a container has, also a dead one, or mounts; that sandboxes are made of; that is pinned, in
` + "`imageAllowList`" + `, being pulled, or younger than ` + "`imageMinimumGCAge`" + `. While the proxy is not reached ten minutes take the
place of a smaller age. Without any sign of a kubelet (` + "`kubeletConfig`" + `, the Pods API, pods that kubelet made) no image is removed
unless one of these keys is written: nobody might pull it again.

An entry of ` + "`imageAllowList`" + ` is a reference (` + "`registry.example/app:1`" + `), a prefix that ends with ` + "`*`" + `, or a digest
(` + "`sha256:…`" + `).
`

const reload = `
## Reload

On SIGHUP the file is read anew and applied as a whole: if anything in it is wrong, or a key that needs a restart differs, there is
one error for each in the log and in ` + "`cri-evictd status`" + `, and what was in force before goes on. kubelet's configuration
(` + "`kubeletConfig`" + `) is read anew too. A hard threshold that is new and already met is not acted on until it was clear once, or
` + "`cri-evictd arm`" + `. ` + "`serve`, `evict` and `proxy`" + ` each take their own SIGHUP.
`
