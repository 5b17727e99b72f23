package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
)

// longestUpgrade bounds the wait for a hand-over: the longest handOverTimeout, for
// the process before the running one, and the new one's start.
const longestUpgrade = time.Hour + 2*upgradePatience

// errNobody says that nobody serves a socket.
var errNobody = errors.New("not running")

// upgradeResult is one half's outcome.
type upgradeResult struct {
	Part string `json:"part"` // proxy or evictor
	upgraded
	Error string `json:"error,omitempty"`
}

func (a *app) upgradeCommand() *cobra.Command {
	var d dataFlags
	var proxySocket string
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Hand over to the program that is installed now, without a failed call",
		Long: `upgrade makes the running proxy and evictor start the program that lies at their path
now, with the arguments they have, and give way to it as soon as it serves. Calls
that are under way finish in the old process, for handOverTimeout at most; endless
streams end then. A program that does not come up leaves the old process serving.
Holds are enforced throughout.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.check(); err != nil {
				return err
			}
			for flag, value := range map[string]string{"--admin-socket": d.socket, "--proxy-socket": proxySocket} {
				if _, err := cri.ParseEndpoint(flag, value); err != nil {
					return usageError{err}
				}
			}
			results := upgradeAll(cmd.Context(), proxySocket, d.socket)
			failed := false
			for _, r := range results {
				failed = failed || r.Error != ""
			}
			if err := d.print(a.out, results, func(w io.Writer) { printUpgrades(w, results) }); err != nil {
				return err
			}
			if failed {
				return errProblem
			}
			return nil
		},
	}
	d.add(cmd)
	cmd.Flags().StringVar(&proxySocket, "proxy-socket", config.DefaultRunDir+"/proxy.sock", "the proxy's socket for the evictor")
	return cmd
}

// upgradeAll upgrades what runs: the proxy first, and the evictor unless both are
// one process. Nothing at all is a failure, one half alone is none.
func upgradeAll(ctx context.Context, proxySocket, adminSocket string) []upgradeResult {
	var results []upgradeResult
	var of upgraded
	for _, part := range []struct{ name, socket string }{{"proxy", proxySocket}, {"evictor", adminSocket}} {
		if of.New.PID != 0 && sameProcess(ctx, part.socket, of) {
			continue
		}
		r := upgradeResult{Part: part.name}
		var err error
		if r.upgraded, err = askUpgrade(ctx, part.socket); err != nil {
			r.Error = err.Error()
		}
		of = r.upgraded
		if !errors.Is(err, errNobody) {
			results = append(results, r)
		}
	}
	if results == nil {
		results = []upgradeResult{{Part: "proxy", Error: fmt.Sprintf("nobody serves %s or %s", proxySocket, adminSocket)}}
	}
	return results
}

func printUpgrades(w io.Writer, results []upgradeResult) {
	for _, r := range results {
		if r.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", r.Part, r.Error)
			continue
		}
		fmt.Fprintf(w, "%s: %s (pid %d) has taken over from %s (pid %d)\n", r.Part, r.New.Version, r.New.PID, r.Old.Version, r.Old.PID)
	}
}

// sameProcess says whether who serves the admin socket is one of the processes of a
// hand-over: those of serve, whose evictor goes along with the proxy.
func sameProcess(ctx context.Context, socket string, u upgraded) bool {
	var s struct {
		PID int `json:"pid"`
	}
	err := ask(ctx, http.MethodGet, socket, "/v1/status", &s)
	return err == nil && (s.PID == u.Old.PID || s.PID == u.New.PID)
}

// askUpgrade asks the process behind a socket to hand over.
func askUpgrade(ctx context.Context, socket string) (upgraded, error) {
	var u upgraded
	err := ask(ctx, http.MethodPost, socket, "/v1/upgrade", &u)
	return u, err
}

// ask makes one request. The error wraps errNobody where nobody listens.
func ask(ctx context.Context, method, socket, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, longestUpgrade)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://cri-evictd"+path, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", socket, err)
	}
	resp, err := client.Do(req)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s: %w: %w", socket, errNobody, err)
	}
	if err != nil {
		return fmt.Errorf("asking %s: %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end or of no use
	if resp.StatusCode != http.StatusOK {
		const most = 4096
		text, _ := io.ReadAll(io.LimitReader(resp.Body, most)) // the status alone says enough
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("answer of %s: %w", socket, err)
	}
	return nil
}
