package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readyTimeout is the default of ReadyTimeout. It is far above the 0.3 s of an
// idle machine; builds may run beside us.
const readyTimeout = 60 * time.Second

// ContainerdOptions says which containerd to start and where.
type ContainerdOptions struct {
	Tools   Tools
	Version Version // for messages; what counts is the binary in Tools
	// Dir is an existing folder of the caller, see NewScratch. It must be
	// short: a socket address has at most 107 bytes. Everything goes into
	// its subfolder "ctd".
	Dir string
	// SystemdCgroup selects runc's systemd cgroup driver; the host must run
	// systemd, and cgroup parents are then slices (QoSSlice).
	SystemdCgroup bool
	// CRI makes containerd offer more of CRI than labs usually need; nil: pods
	// have the host's network, images are the lab's own, and there is no NRI.
	CRI *CRIOptions
	// ReadyTimeout bounds the wait for containerd's first answer, at every start;
	// 0: a minute, which is too short where everything is emulated.
	ReadyTimeout time.Duration
	// Root is called with containerd's root folder before anything is in it, as to
	// mount a file system there; nil: not. Cleanup unmounts it.
	Root func(dir string) error
	// Log gets progress lines; nil: none. containerd's own output is in
	// LogFile.
	Log io.Writer
}

// CRIOptions are for running all of CRI; containerd 2 only. The pods' networks
// are made in the network namespace of the caller.
type CRIOptions struct {
	CNIPlugins string   // folder of the CNI plugins
	CNIConfig  string   // folder of the network's configuration, *.conflist
	Registries string   // folder with <registry>/hosts.toml, or _default/hosts.toml
	Path       []string // folders in front of PATH, for what plugins run (iptables)
	NRI        bool     // serve NRI at Containerd.NRISocket
}

// Containerd is a private containerd. Its methods may be called from several
// goroutines, but not Restart, Stop and Cleanup at the same time.
type Containerd struct {
	// Socket is the path of its CRI socket.
	Socket string
	// NRISocket is the path of its NRI socket, if CRIOptions asked for one.
	NRISocket string
	// LogFile is where its output goes, over all restarts.
	LogFile string

	opts   ContainerdOptions
	layout layout
	prog   *program
	left   traces // what was seen to be cleaned up; used by Cleanup only
}

// StartContainerd starts containerd with its own root, state and socket,
// imports the images and returns when CRI answers. ctx bounds the start only;
// the process lives until Stop, Kill or Cleanup. Needs root. After an error
// nothing is left.
func StartContainerd(ctx context.Context, opts ContainerdOptions) (*Containerd, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("lab: containerd needs root")
	}
	if opts.Log == nil {
		opts.Log = io.Discard
	}
	if opts.ReadyTimeout == 0 {
		opts.ReadyTimeout = readyTimeout
	}
	dir, err := realPath(opts.Dir)
	if err != nil {
		return nil, err
	}
	l := layout{dir: filepath.Join(dir, "ctd")}
	// containerd adds ".ttrpc" for its second socket.
	if len(l.socket())+len(".ttrpc") > maxSocketPath {
		return nil, fmt.Errorf("lab: %s: too long for containerd's sockets (%d bytes are possible)", dir, maxSocketPath)
	}
	c := &Containerd{Socket: l.socket(), LogFile: l.log(), opts: opts, layout: l}
	c.prog = &program{
		name: "containerd", path: opts.Tools.Containerd, args: []string{"--config", l.config()}, dir: l.dir,
		logFile: c.LogFile, ready: opts.ReadyTimeout,
		// The shim is found through PATH.
		env: []string{"PATH=" + c.path() + ":" + usualPath, "TMPDIR=" + l.tmp()},
	}
	if opts.CRI != nil && opts.CRI.NRI {
		c.NRISocket = l.nri()
	}
	start := time.Now()
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Cleanup())
	}
	if err := c.importImages(ctx); err != nil {
		return nil, errors.Join(err, c.Cleanup())
	}
	fmt.Fprintf(opts.Log, "lab: containerd %s answers after %.1f s: %s\n", opts.Version, time.Since(start).Seconds(), c.Socket)
	return c, nil
}

// prepare makes the folders and writes the configuration.
func (c *Containerd) prepare(ctx context.Context) error {
	major, err := containerdMajor(ctx, c.opts.Tools.Containerd)
	if err != nil {
		return err
	}
	if c.opts.CRI != nil && major < 2 {
		return errors.New("lab: CRIOptions need containerd 2")
	}
	if err := os.Mkdir(c.layout.dir, 0o711); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	restrict, err := lacksSysResource()
	if err != nil {
		return err
	}
	for _, dir := range []string{c.layout.root(), c.layout.state(), c.layout.none(), c.layout.tmp()} {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return fmt.Errorf("lab: %w", err)
		}
	}
	if c.opts.Root != nil {
		if err := c.opts.Root(c.layout.root()); err != nil {
			return fmt.Errorf("lab: containerd's root: %w", err)
		}
	}
	snapshotter, err := snapshotterFor(c.layout.root())
	if err != nil {
		return err
	}
	config := settings{
		layout: c.layout, runc: c.opts.Tools.Runc, major: major,
		systemdCgroup: c.opts.SystemdCgroup, restrictOOM: restrict,
		snapshotter: snapshotter, maxMessageSize: 64 << 20, full: c.opts.CRI,
	}.render()
	if err := os.WriteFile(c.layout.config(), []byte(config), 0o600); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return nil
}

// path is what comes in front of the usual PATH.
func (c *Containerd) path() string {
	dirs := []string{filepath.Dir(c.opts.Tools.Shim)}
	if c.opts.CRI != nil {
		dirs = append(dirs, c.opts.CRI.Path...)
	}
	return strings.Join(dirs, ":")
}

// start returns when CRI answers a call that needs its stores loaded.
func (c *Containerd) start(ctx context.Context) error {
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // only used here
	rt := runtimeapi.NewRuntimeServiceClient(conn)
	return c.prog.start(ctx, func(ctx context.Context) error {
		if _, err := rt.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
			return err
		}
		_, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		return err
	})
}

// importImages gives containerd the workload and the pause image.
func (c *Containerd) importImages(ctx context.Context) error {
	binary, err := os.ReadFile(c.opts.Tools.Workload)
	if err != nil {
		return fmt.Errorf("lab: workload binary: %w", err)
	}
	f, err := os.Create(c.layout.archive())
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	err = errors.Join(WriteImages(f, binary), f.Close())
	if err != nil {
		return err
	}
	snapshotter, err := snapshotterFor(c.layout.root())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.opts.Tools.Ctr, "--address", c.Socket, "-n", "k8s.io",
		"images", "import", "--snapshotter", snapshotter, c.layout.archive())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("lab: ctr images import: %w\n%s", err, lastLines(out, 10))
	}
	if err := os.Remove(c.layout.archive()); err != nil {
		return fmt.Errorf("lab: %w", err)
	}

	// CRI learns of imported images by an event, a moment later.
	conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // only used here
	client := runtimeapi.NewImageServiceClient(conn)
	for _, img := range labImages() {
		err := c.prog.await(ctx, "image "+img.name, func(ctx context.Context) error {
			got, err := client.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: img.name}})
			if err != nil {
				return err
			}
			if got.Image == nil {
				return errors.New("not there")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Dial returns a direct connection to this containerd. The caller closes it.
func (c *Containerd) Dial() (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+c.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		return nil, fmt.Errorf("lab: %s: %w", c.Socket, err)
	}
	return conn, nil
}

// Pid returns containerd's process id, 0 when it does not run.
func (c *Containerd) Pid() int { return c.prog.pid() }

// Kill ends containerd with SIGKILL and waits until it is gone. Shims and
// containers run on. It is no error if containerd does not run.
func (c *Containerd) Kill() error { return c.prog.kill() }

// Stop ends containerd with SIGTERM, and with SIGKILL after 10 s. Shims and
// containers run on. It is no error if containerd does not run.
func (c *Containerd) Stop() error { return c.prog.stop() }

// Restart starts containerd again, after stopping it if it runs, and returns
// when CRI answers. ctx bounds the wait.
func (c *Containerd) Restart(ctx context.Context) error {
	if err := c.Stop(); err != nil {
		return err
	}
	return c.start(ctx)
}
