#!/bin/busybox sh
# PID 1 of the machine of `vm powercut`: nothing but the kernel, a disk and the
# survivor. It mounts what that needs and becomes it.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
  insmod "$module"
done
tries=0
until [ -b /dev/vda ] || [ $tries -ge 200 ]; do
  usleep 50000
  tries=$((tries + 1))
done
mkdir -p /run /tmp /state
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# Recovers what was cut.
if ! mount -t ext4 /dev/vda /state; then
  echo "FAIL: the disk cannot be mounted"
fi
exec /survivor
