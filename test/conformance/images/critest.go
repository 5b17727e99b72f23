package images

import (
	"errors"
	"runtime"
)

// Programs are what the images are made of.
type Programs struct {
	Busybox  Rootfs // Debian's busybox: its shell must not run commands by itself
	Guest    []byte // test/conformance/guest, static
	Commands []string
}

// Rootfs are files by their path in an image, without the leading "/".
type Rootfs map[string][]byte

const (
	upstream = "e2e-test-images/"       // of registry.k8s.io
	staging  = "k8s-staging-cri-tools/" // of gcr.io

	path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	users = `root:x:0:0:root:/root:/bin/sh
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
`
	groups = `root:x:0:
users:x:100:
www-data:x:33:
nobody:x:65534:
`
)

// builder collects the first error.
type builder struct {
	registry *Registry
	guest    []byte
	err      error
}

func (b *builder) layer(files ...file) layer {
	l, err := newLayer(files...)
	b.err = errors.Join(b.err, err)
	return l
}

func (b *builder) add(name string, run runConfig, layers ...layer) {
	run.Env = append(run.Env, path)
	img, err := newImage(run, layers...)
	b.err = errors.Join(b.err, err)
	b.registry.add(name, img)
}

// program is a layer with one more name for the guest.
func (b *builder) program(name string, mode int64) layer {
	return b.layer(file{name: name, mode: mode, data: b.guest})
}

// marked is a layer that makes an image differ from all others.
func (b *builder) marked(mark string) layer {
	return b.layer(file{name: "mark", mode: 0o644, data: []byte(mark + "\n")})
}

// ForCritest makes every image that critest 1.37 pulls.
func ForCritest(p Programs) (*Registry, error) {
	b := &builder{registry: NewRegistry(), guest: p.Guest}
	base := b.layer(userland(p)...)
	sh := runConfig{Cmd: []string{"sh"}}

	b.add(upstream+"busybox:1.29-2", sh, base)
	nginx := runConfig{Cmd: []string{"nginx", "-g", "daemon off;"}, ExposedPorts: ports("80/tcp"), StopSignal: "SIGTERM"}
	b.add(upstream+"nginx:1.14-2", nginx, base, b.program("usr/sbin/nginx", 0o755))
	nginx.Env, nginx.ExposedPorts = []string{"GUEST_PORT=12003"}, ports("12003/tcp")
	b.add(staging+"hostnet-nginx-"+runtime.GOARCH+":latest", nginx, base, b.program("usr/sbin/nginx", 0o755))
	b.add(upstream+"httpd:2.4.39-4", runConfig{Cmd: []string{"httpd", "-DFOREGROUND"}, ExposedPorts: ports("80/tcp")},
		base, b.program("usr/local/bin/httpd", 0o755))
	b.add(upstream+"nonewprivs:1.3", runConfig{Entrypoint: []string{"/nonewprivs"}}, base, b.program("nonewprivs", 0o4755))
	b.add("pause:3.9", runConfig{Entrypoint: []string{"/pause"}, User: "65535:65535"}, b.program("pause", 0o755))

	for name, user := range map[string]string{
		"user-uid": "1002", "user-username": "www-data", "user-uid-group": "1003:users", "user-username-group": "www-data:10003",
	} {
		b.add(staging+"test-image-"+name+":latest", runConfig{Cmd: []string{"sh"}, User: user}, base)
	}
	b.add(staging+"test-image-predefined-group:latest", runConfig{Cmd: []string{"sh"}, User: "1000"}, base, b.layer(
		file{name: "etc/passwd", mode: 0o644, data: []byte(users + "default-user:x:1000:1000::/home:/bin/sh\n")},
		file{name: "etc/group", mode: 0o644, data: []byte(groups + "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n")}))

	for _, name := range []string{"latest:latest", "tag:all", "1:latest", "2:latest", "3:latest"} {
		b.add(staging+"test-image-"+name, sh, base, b.marked(name))
	}
	// A spec starts this image's own command and removes the container while it
	// runs. "sh" ends at once by itself, and containerd's RemoveContainer can fail
	// in just that moment: the spec would flip.
	b.add(staging+"test-image-tag:test", runConfig{Cmd: []string{"sleep", "3600"}}, base, b.marked("tag:test"))
	for _, tag := range []string{"1", "2", "3"} { // three tags of one image
		b.add(staging+"test-image-tags:"+tag, sh, base, b.marked("tags"))
	}
	// Pulled by the digest it has upstream, which no image made here has: that
	// spec fails, directly too.
	b.add(staging+"test-image-digest:latest", sh, b.marked("digest"))
	return b.registry, b.err
}

// userland is a layer like that of docker.io/library/busybox. Every command is
// a hard link: masking the path of one must not mask all.
func userland(p Programs) []file {
	files := []file{{name: "tmp/", mode: 0o1777}, {name: "root/", mode: 0o700}}
	for _, dir := range []string{"bin/", "dev/", "etc/", "home/", "usr/", "usr/bin/", "usr/sbin/", "usr/local/", "usr/local/bin/", "var/", "var/run/", "var/lib/", "var/www/"} {
		files = append(files, file{name: dir, mode: 0o755})
	}
	files = append(files,
		file{name: "etc/passwd", mode: 0o644, data: []byte(users)},
		file{name: "etc/group", mode: 0o644, data: []byte(groups)})
	for _, name := range sorted(p.Busybox) {
		files = append(files, file{name: name, mode: 0o755, data: p.Busybox[name]})
	}
	for _, c := range p.Commands {
		files = append(files, file{name: "bin/" + c, link: "bin/busybox", mode: 0o755})
	}
	// Debian's busybox is built without these two.
	return append(files,
		file{name: "usr/bin/pgrep", mode: 0o755, data: p.Guest},
		file{name: "usr/bin/ipcs", mode: 0o755, data: p.Guest})
}

func ports(names ...string) map[string]struct{} {
	m := map[string]struct{}{}
	for _, n := range names {
		m[n] = struct{}{}
	}
	return m
}
