#!/bin/busybox sh
# The guest's first program: loads the modules, puts the host's root under a layer of memory, makes the RDMA devices on their
# wire, and hands over to the agent (xtask itself, from the host's file system). Output goes to the kernel's console, which the
# host keeps and shows only when the boot fails.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
echo 'xtask: the guest is alive'

give_up() {
    echo "xtask: boot failed: $1"
    poweroff -f
    sleep 60
}

while read -r module; do
    insmod "/modules/$module" || give_up "insmod $module"
done </modules/order

mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose root /host || give_up 'mounting the root of the host'
mount -t tmpfs tmpfs /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root || give_up 'layering memory over the root'
for folder in proc sys dev run; do
    [ -d /root/$folder ] || mkdir /root/$folder
done
mount --bind /proc /root/proc
mount --bind /sys /root/sys
mount --bind /dev /root/dev
mount -t tmpfs -o mode=755 tmpfs /root/run
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts /root/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /root/dev/shm
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd

# Modules that programs or the kernel ask for later come from the same kernel, through the host's modprobe.
release=$(uname -r)
mkdir -p "/root/lib/modules/$release"
mount --bind "/root$(cat /job/modules)" "/root/lib/modules/$release" || give_up 'finding the modules'
echo /bin/modprobe-in-root >/proc/sys/kernel/modprobe

hostname "$(cat /job/hostname)"
ulimit -l unlimited
ulimit -n 65536
# As many tests as there are processors may send at once: let nothing be dropped for want of buffers.
for setting in rmem_max wmem_max; do
    echo 16777216 >/proc/sys/net/core/$setting
done
for where in all default; do
    echo 1 >/proc/sys/net/ipv4/conf/$where/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$where/rp_filter
    echo 0 >/proc/sys/net/ipv6/conf/$where/accept_dad
done

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
/bin/chroot /root /usr/bin/env ip -batch - </job/ip || give_up 'the network'
/bin/chroot /root /usr/bin/env rdma -b - </job/rdma || give_up 'the RDMA devices'
echo 'xtask: the devices are ready'
/bin/chroot /root "$(/bin/cat /job/agent)" agent
/bin/echo "xtask: the agent ended with status $?"
/bin/sync
/bin/poweroff -f
