#!/bin/sh
# Process 1 of a guest.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=vt100
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /run/lock /tmp
# Links that udev makes elsewhere. Substitutions of processes in bash use the first one.
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t debugfs debug /sys/kernel/debug
ulimit -l unlimited
ulimit -c 0
echo 1 >/proc/sys/kernel/sysrq
# Without its driver, all devices of a guest with a virtio-iommu wait for it.
[ ! -e /vrnic/virtio-iommu.ko ] || insmod /vrnic/virtio-iommu.ko
modprobe -a virtio_console virtio_net
# A guest whose root is on a disk goes on there.
[ ! -e /vrnic/disk ] || . /vrnic/disk
until port=$(grep -lx vrnic.agent /sys/class/virtio-ports/*/name 2>/dev/null); do sleep 0.05; done
mkdir /dev/virtio-ports
port=${port%/name}
ln -s "../${port##*/}" /dev/virtio-ports/vrnic.agent
ip link set lo up
/vrnic/agent >/dev/console 2>&1 &
# A shell for people, on the second serial line.
while :; do
	setsid -c bash -l </dev/ttyS1 >/dev/ttyS1 2>&1
	sleep 1
done
