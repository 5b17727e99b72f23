package main

import "testing"

func TestModuleOrder(t *testing.T) {
	deps, err := parseModuleDeps(`# comment
kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/fs/mbcache.ko kernel/lib/crc16.ko

kernel/fs/jbd2/jbd2.ko:
kernel/fs/mbcache.ko:
kernel/lib/crc16.ko:
kernel/drivers/virtio/virtio_pci.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio_ring.ko.xz: kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/virtio/virtio.ko.xz:
kernel/drivers/char/hw_random/virtio-rng.ko: kernel/drivers/virtio/virtio.ko.xz
a.ko: b.ko
b.ko: a.ko
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		names []string
		want  []string
	}{
		{[]string{"ext4"}, []string{"kernel/fs/jbd2/jbd2.ko", "kernel/fs/mbcache.ko", "kernel/lib/crc16.ko", "kernel/fs/ext4/ext4.ko"}},
		{[]string{"virtio_pci", "virtio_rng"}, []string{"kernel/drivers/virtio/virtio.ko.xz", "kernel/drivers/virtio/virtio_ring.ko.xz",
			"kernel/drivers/virtio/virtio_pci.ko.xz", "kernel/drivers/char/hw_random/virtio-rng.ko"}},
		{[]string{"builtin"}, nil},
		{[]string{"a"}, []string{"b.ko", "a.ko"}}, // a circle ends
		{[]string{"ext4", "ext4", "jbd2"}, []string{"kernel/fs/jbd2/jbd2.ko", "kernel/fs/mbcache.ko", "kernel/lib/crc16.ko", "kernel/fs/ext4/ext4.ko"}},
	} {
		if got := deps.order(tt.names...); !equal(got, tt.want...) {
			t.Errorf("%v: %q, want %q", tt.names, got, tt.want)
		}
	}
	if _, err := parseModuleDeps("no colon"); err == nil {
		t.Error("a line without a colon is no error")
	}
}

func FuzzModuleDeps(f *testing.F) {
	f.Add("a.ko: b.ko\nb.ko:\n")
	f.Add("a.ko: a.ko")
	f.Fuzz(func(t *testing.T, text string) {
		deps, err := parseModuleDeps(text)
		if err != nil {
			return
		}
		for file := range deps {
			seen := map[string]bool{}
			for _, m := range deps.order(moduleName(file)) {
				if seen[m] {
					t.Errorf("%s is loaded twice", m)
				}
				seen[m] = true
			}
		}
	})
}
