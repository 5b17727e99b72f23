#!/bin/busybox sh
# PID 1 of the initramfs: loads what stands between the kernel and its root disk,
# puts the agent in place and hands over to systemd.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

# A machine that was only booted to see whether this accelerator works.
if grep -q evictd.probe /proc/cmdline; then
  echo evictd-probe-ok >/dev/ttyS0
  poweroff -f
fi

for module in /modules/*; do
  insmod "$module"
done
tries=0
until [ -b /dev/vda ] || [ $tries -ge 200 ]; do
  usleep 50000
  tries=$((tries + 1))
done
if ! mount -t ext4 -o noatime /dev/vda /newroot; then
  echo "init: no root disk" >/dev/console
  poweroff -f
fi
# systemd leaves a /run that is there already as it is.
mount -t tmpfs -o mode=755,nosuid,nodev run /newroot/run
mkdir /newroot/run/evictd-vm
cp /agent /newroot/run/evictd-vm/agent
mount --move /dev /newroot/dev
umount /sys
umount /proc
exec switch_root /newroot /sbin/init
