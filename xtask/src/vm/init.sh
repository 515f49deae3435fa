#!/bin/busybox sh
# The guest's first program: loads the modules, puts the host's root under a layer of memory, makes the RDMA devices on their
# wire, and hands over to the agent (xtask itself, from the host's file system). What can wait for nothing runs beside the rest:
# there are two processors. Output goes to the kernel's console, which the host keeps and shows only when the boot fails.
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

modprobe -a $(cat /job/modules-first) || give_up 'loading the modules for files and ports'
(modprobe -a $(cat /job/modules-then) && echo loaded >/job/loaded) &
loading=$!

mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /host || give_up 'mounting the root of the host'
mount -t tmpfs tmpfs /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /root || give_up 'layering memory over the root'
for folder in proc sys dev run; do
    [ -d /root/$folder ] || mkdir /root/$folder
done
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -o rbind /proc /root/proc
mount -o rbind /sys /root/sys
mount -o rbind /dev /root/dev
mount -t tmpfs -o mode=755 tmpfs /root/run

# Modules that programs or the kernel ask for later come from the same kernel, through the host's modprobe.
release=$(cat /job/release)
[ -d "/root/lib/modules/$release" ] || mkdir -p "/root/lib/modules/$release"
mount -o bind "/root$(cat /job/modules)" "/root/lib/modules/$release" || give_up 'finding the modules'
echo /bin/modprobe-in-root >/proc/sys/kernel/modprobe

cat /job/hostname >/proc/sys/kernel/hostname
ulimit -l unlimited
ulimit -n 65536
for setting in rmem_max wmem_max; do
    echo 16777216 >/proc/sys/net/core/$setting
done
for where in all default; do
    echo 1 >/proc/sys/net/ipv4/conf/$where/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/$where/rp_filter
    echo 0 >/proc/sys/net/ipv6/conf/$where/accept_dad
done

wait $loading
[ -e /job/loaded ] || give_up 'loading the modules for RDMA'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# The agent waits for the file that says how this went.
(
    /bin/chroot /root /usr/bin/env ip -batch - </job/ip || { echo 'the network cannot be set up (ip)' >/root/run/xtask.devices; exit; }
    /bin/chroot /root /usr/bin/env rdma -b - </job/rdma || { echo 'the RDMA devices cannot be made (rdma)' >/root/run/xtask.devices; exit; }
    echo ready >/root/run/xtask.devices
) &
/bin/chroot /root "$(/bin/cat /job/agent)" agent
echo "xtask: the agent ended with status $?"
/bin/sync
/bin/poweroff -f
