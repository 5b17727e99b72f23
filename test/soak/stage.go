package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/admin"
	"github.com/cri-evictd/cri-evictd/cri"
	"github.com/cri-evictd/cri-evictd/internal/lab"
)

const (
	// readyTimeout is far above what a start takes on an idle machine.
	readyTimeout = 60 * time.Second
	// settle is how long a process may take to give back what it needed while
	// it was busy.
	settle = 10 * time.Second
	// longAbsence is how long the runtime is away once in every soak.
	longAbsence = 30 * time.Second
)

// soak is the whole run.
type soak struct {
	binary  string
	length  time.Duration
	workers int
	seed    uint64
	out     io.Writer
	counts  *tally

	dir       string
	removeDir func()
	ctd       *lab.Containerd
	proxy     *daemon
	evict     *daemon
	conns     []*grpc.ClientConn
	through   runtimeapi.RuntimeServiceClient
	direct    runtimeapi.RuntimeServiceClient
}

func (s *soak) say(format string, args ...any) { fmt.Fprintf(s.out, "soak: "+format+"\n", args...) }

// set starts everything.
func (s *soak) set(ctx context.Context) error {
	binary, err := filepath.Abs(s.binary)
	if err != nil {
		return err
	}
	if s.dir, s.removeDir, err = lab.NewScratch(); err != nil {
		return err
	}
	tools, err := lab.EnsureRuntime(ctx, s.out, lab.Current)
	if err != nil {
		return err
	}
	s.ctd, err = lab.StartContainerd(ctx, lab.ContainerdOptions{Tools: tools, Version: lab.Current, Dir: s.dir, Log: s.out})
	if err != nil {
		return err
	}
	config := filepath.Join(s.dir, "config.yaml")
	// A threshold so low that nothing is evicted: this is about keeping in step.
	text := lab.Config(s.dir, s.ctd.Socket, "evictionHard:\n  memory.available: 16Mi\n"+lab.DisksOff)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	s.proxy = &daemon{log: filepath.Join(s.dir, "proxy.log"), argv: []string{binary, "proxy", "--config", config}}
	s.evict = &daemon{log: filepath.Join(s.dir, "evict.log"), argv: []string{binary, "evict", "--config", config}}
	if err := errors.Join(s.proxy.start(), s.evict.start()); err != nil {
		return err
	}
	if s.through, err = s.client(filepath.Join(s.dir, "cri.sock")); err != nil {
		return err
	}
	if s.direct, err = s.client(s.ctd.Socket); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

func (s *soak) client(socket string) (runtimeapi.RuntimeServiceClient, error) {
	conn, err := grpc.NewClient(cri.Target, cri.DialOptions(cri.Endpoint{Path: socket}, nil)...)
	if err != nil {
		return nil, err
	}
	s.conns = append(s.conns, conn)
	return runtimeapi.NewRuntimeServiceClient(conn), nil
}

func (s *soak) admin() *admin.Client {
	return admin.NewClient(cri.Endpoint{Path: filepath.Join(s.dir, "admin.sock")})
}

// awaitReady waits until calls pass and the evictor has read the lists and
// follows the proxy.
func (s *soak) awaitReady(ctx context.Context) error {
	return await(ctx, "proxy and evictor ready", func(ctx context.Context) error {
		if _, err := s.through.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
			return err
		}
		st, err := s.admin().Status(ctx)
		if err != nil {
			return err
		}
		if !st.Engine.Inventory.Listed || st.Engine.Inventory.ListError != "" || !st.Proxy.Reachable {
			return fmt.Errorf("inventory %+v, proxy %+v", st.Engine.Inventory, st.Proxy)
		}
		return nil
	})
}

// cleanup ends everything and tells what is left.
func (s *soak) cleanup() []string {
	var left []string
	note := func(err error) {
		if err != nil {
			left = append(left, err.Error())
		}
	}
	for _, c := range s.conns {
		note(c.Close())
	}
	for _, d := range []*daemon{s.evict, s.proxy} {
		if d != nil {
			note(d.terminate())
		}
	}
	if s.dir != "" && s.proxy != nil {
		for _, name := range []string{"cri.sock", "admin.sock", "run/proxy.sock"} {
			if _, err := os.Lstat(filepath.Join(s.dir, name)); err == nil {
				left = append(left, "socket "+name)
			}
		}
	}
	if s.ctd != nil {
		note(s.ctd.Cleanup())
		left = append(left, s.ctd.Leftovers()...)
	}
	if s.removeDir != nil {
		s.removeDir()
		left = append(left, lab.Leftovers(s.dir)...)
	}
	return left
}

// await repeats ready until it succeeds or time is up.
func await(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		try, stop := context.WithTimeout(ctx, 5*time.Second)
		err := ready(try)
		stop()
		if err == nil {
			return nil
		}
		if sleep(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
