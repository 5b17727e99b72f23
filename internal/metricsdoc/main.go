// Command metricsdoc writes docs/metrics.md:
//
//	go run ./internal/metricsdoc > docs/metrics.md
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/cri-evictd/cri-evictd/admin"
)

func main() {
	var b strings.Builder
	admin.WriteMetricsPage(&b)
	if _, err := os.Stdout.WriteString(b.String()); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdoc:", err)
		os.Exit(1)
	}
}
