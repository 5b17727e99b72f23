package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/eviction"
)

// dataFlags are those of every command that prints data.
type dataFlags struct {
	output string
	socket string
}

func (d *dataFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&d.output, "output", "o", "text", "text or json")
	f.StringVar(&d.socket, "admin-socket", config.DefaultAdminSocket, "the daemon's admin socket")
}

// check validates -o; it is called before anything is done.
func (d *dataFlags) check() error {
	if d.output != "text" && d.output != "json" {
		return usageError{fmt.Errorf("-o %q: must be text or json", d.output)}
	}
	return nil
}

// client returns a client of the daemon.
func (d *dataFlags) client() (*admin.Client, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	e, err := cri.ParseEndpoint("--admin-socket", d.socket)
	if err != nil {
		return nil, usageError{err}
	}
	return admin.NewClient(e), nil
}

// print writes v as JSON, or calls text.
func (d *dataFlags) print(out io.Writer, v any, text func(io.Writer)) error {
	if d.output == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	text(out)
	return nil
}

// table writes aligned columns.
func table(out io.Writer, write func(w io.Writer)) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	write(w)
	_ = w.Flush() // the terminal is gone: nobody is left to tell
}

// bytesText prints an amount for people; JSON has the exact number.
func bytesText[T int64 | uint64](n T) string {
	const whole = 1 << 20
	if n > whole {
		n -= n % whole
	}
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}

// amountText prints an amount in its unit for people.
func amountText(n uint64, u eviction.Unit) string {
	if u == eviction.Bytes || u == "" {
		return bytesText(n)
	}
	return fmt.Sprintf("%d %s", n, u)
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return time.Since(t).Round(time.Second).String() + " ago"
}
