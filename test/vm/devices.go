package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cri-evictd/cri-evictd/test/vm/protocol"
)

// devices returns qemu's arguments for disks, shared folders, console and port.
func (b *boot) devices(socket string) ([]string, error) {
	args := []string{
		// The root disk comes first: it is /dev/vda. Changes go to a file that is
		// thrown away, so that every machine starts from the same disk.
		"-drive", "file=" + b.img.root + ",if=none,id=root,format=raw,snapshot=on,cache=unsafe,discard=unmap",
		"-device", "virtio-blk-pci,drive=root,serial=root",
		"-serial", "file:" + filepath.Join(b.dir, "console.log"),
		"-device", "virtio-serial-pci", "-chardev", "socket,id=agent,path=" + socket,
		"-device", "virtserialport,chardev=agent,name=" + protocol.Port,
	}
	disk := func(serial string, mib int) error {
		path := filepath.Join(b.dir, serial+".img")
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := f.Truncate(int64(mib) << 20); err != nil {
			return err
		}
		args = append(args,
			"-drive", "file="+path+",if=none,id="+serial+",format=raw,cache=unsafe,discard=unmap",
			"-device", "virtio-blk-pci,drive="+serial+",serial="+serial)
		return f.Close()
	}
	if b.swap > 0 {
		if err := disk(protocol.SwapDisk, b.swap); err != nil {
			return nil, err
		}
	}
	for i, mib := range b.disks {
		if err := disk(fmt.Sprintf("data%d", i), mib); err != nil {
			return nil, err
		}
	}
	for i, s := range b.shares {
		if s.disk != "" {
			args = append(args,
				"-drive", "file="+s.disk+",if=none,id="+tag(i)+",format=raw,readonly=on",
				"-device", "virtio-blk-pci,drive="+tag(i)+",serial="+tag(i))
			continue
		}
		// qemu runs as root: owners and modes are the same on both sides.
		fsdev := fmt.Sprintf("local,id=%s,path=%s,security_model=passthrough,multidevs=remap", tag(i), s.host)
		if !s.write {
			fsdev += ",readonly=on"
		}
		args = append(args, "-fsdev", fsdev, "-device", fmt.Sprintf("virtio-9p-pci,fsdev=%s,mount_tag=%[1]s", tag(i)))
	}
	return args, nil
}

func tag(i int) string { return fmt.Sprintf("share%d", i) }

// job is what the agent is sent.
func (b *boot) job() protocol.Job {
	job := protocol.Job{Swap: b.swap > 0, Steps: b.steps}
	for i, s := range b.shares {
		job.Shares = append(job.Shares, protocol.Share{Tag: tag(i), Mount: s.mount, Write: s.write, Disk: s.disk != ""})
	}
	return job
}
