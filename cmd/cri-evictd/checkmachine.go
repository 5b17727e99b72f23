package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/cri-evictd/cri-evictd/cgroupfs"
	"github.com/cri-evictd/cri-evictd/config"
	"github.com/cri-evictd/cri-evictd/cri"
)

// checkMachine looks at memory, thresholds and cgroups.
func (a *app) checkMachine(ctx context.Context, f *findings, cfg config.Config, kubelet kubeletFiles) {
	m, err := a.machine()
	if err != nil {
		f.add(levelError, "machine", "%v", err)
		return
	}
	defer func() { _ = m.close() }() // read only; nothing can be lost
	for _, n := range m.notes {
		f.add(levelWarning, "machine", "%s", n)
	}
	checkPods(f, m)
	checkZombies(f, m)
	checkProcesses(f, m)
	res := resolveWith(cfg, m, kubelet.dir)
	checkThresholds(f, m, &res)
	capacity := m.capacities(ctx, cfg)
	checkSlow(ctx, f, cfg, m, &res, capacity)
	checkKubelet(f, cfg, m, &res)
	if kubelet.file != "" {
		if k, err := config.ReadKubeletSettings(kubelet.file, kubelet.dir); err != nil {
			f.add(levelError, "kubelet beside us", "%v", err)
		} else {
			sideBySide(f, cfg, &res, &k, capacity)
			offerConditions(f, cfg, &res, &k, capacity)
		}
	}
	h := res.headroom(m)
	h.report(f)
}

func checkKubelet(f *findings, cfg config.Config, m *machine, res *resolved) {
	r := &res.set.Rules
	if cfg.KubeletConfig == "" {
		f.add(levelOK, "kubelet", "kubeletConfig is not set: kubelet's own hard memory threshold is taken to be 100Mi")
		return
	}
	if res.kubeletErr != nil {
		f.add(levelError, "kubelet", "%v", res.kubeletErr)
		return
	}
	t := res.kubelet.HardMemory
	if t.Off {
		f.add(levelWarning, "kubelet", "its hard memory.available is %s: there is no backstop below ours", t.Text)
		return
	}
	theirs := t.Resolve(m.info.MemTotal)
	if r.Amount <= theirs {
		f.add(levelWarning, "kubelet", "our threshold %s is not above kubelet's %s: kubelet evicts first", bytesText(r.Amount), bytesText(theirs))
		return
	}
	f.add(levelOK, "kubelet", "its hard memory.available is %s, %s below ours", bytesText(theirs), bytesText(r.Amount-theirs))
}

func checkPods(f *findings, m *machine) {
	pods, drivers := 0, map[string]bool{}
	err := m.fs.WalkPods(func(p cgroupfs.PodPath) error {
		pods++
		drivers[p.Driver.String()] = true
		return nil
	})
	if err != nil {
		f.add(levelError, "cgroups", "%v", err)
		return
	}
	var names []string
	for d := range drivers {
		names = append(names, d)
	}
	slices.Sort(names)
	text := fmt.Sprintf("%s, %d pods below kubepods", m.fs.Mode(), pods)
	if len(names) > 0 {
		text += ", driver " + strings.Join(names, " and ")
	}
	f.add(levelOK, "cgroups", "%s", text)
}

// checkRuntime asks the runtime for its version.
func checkRuntime(ctx context.Context, f *findings, cfg config.Config) {
	c, err := cri.Dial(cfg.RuntimeEndpoint)
	if err != nil {
		f.add(levelError, "runtime", "%v", err)
		return
	}
	defer func() { _ = c.Close() }() // asked once; nothing can be lost
	v, err := c.Version(ctx)
	switch {
	case status.Code(err) == codes.Unimplemented:
		f.add(levelError, "runtime", "%s does not serve %s: is it the runtime's CRI socket? (%v)", cfg.RuntimeEndpoint, runtimeapi.RuntimeService_ServiceDesc.ServiceName, err)
		return
	case err != nil:
		f.add(levelError, "runtime", "%v%s", err, socketHint(cfg.RuntimeEndpoint.Path))
		return
	}
	f.add(levelOK, "runtime", "%s %s at %s", v.GetRuntimeName(), v.GetRuntimeVersion(), cfg.RuntimeEndpoint)
}

// socketHint tells what is at a path that did not answer.
func socketHint(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Sprintf(" (%s: %v)", path, err)
	}
	return fmt.Sprintf(" (owner %d:%d, mode %#o; we are uid %d)", st.Uid, st.Gid, st.Mode&0o7777, os.Geteuid())
}

// checkSockets looks whether our own addresses are free or served already.
func checkSockets(f *findings, cfg config.Config) {
	for _, s := range []struct {
		what string
		e    cri.Endpoint
	}{{"listen", cfg.Listen}, {"adminSocket", cfg.AdminSocket}, {"proxySocket", cfg.ProxySocket}} {
		level, text := checkSocket(s.e.Path)
		f.add(level, s.what, "%s", text)
	}
}

// checkSocket says what is at a path we would listen at. Only a socket that
// refuses connections is stale (internal/unixsock).
func checkSocket(path string) (level, text string) {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return levelOK, path + " is free"
	case err != nil:
		return levelError, err.Error()
	case fi.Mode().Type() != os.ModeSocket:
		return levelError, fmt.Sprintf("%s exists and is not a socket (%s)", path, fi.Mode())
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return levelOK, path + " is served already"
	case errors.Is(err, syscall.ECONNREFUSED):
		return levelOK, path + " is stale and will be replaced"
	}
	return levelWarning, fmt.Sprintf("%s is a socket that may be in use: %v", path, err)
}

func checkDirs(f *findings, cfg config.Config) {
	var st unix.Statfs_t
	dir := existing(cfg.RunDir)
	switch err := unix.Statfs(dir, &st); {
	case err != nil:
		f.add(levelError, "runDir", "%s: %v", dir, err)
	case st.Type != unix.TMPFS_MAGIC:
		f.add(levelWarning, "runDir", "%s is not on a tmpfs: writing a hold can wait for a disk", cfg.RunDir)
	default:
		f.add(levelOK, "runDir", "%s", cfg.RunDir)
	}
	if dir := existing(cfg.StateDir); unix.Access(dir, unix.W_OK) != nil {
		f.add(levelError, "stateDir", "%s cannot be written by uid %d", dir, os.Geteuid())
	} else {
		f.add(levelOK, "stateDir", "%s", cfg.StateDir)
	}
}

// existing returns the nearest parent that is there.
func existing(dir string) string {
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
