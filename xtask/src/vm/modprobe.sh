#!/bin/busybox sh
# The kernel starts this, outside the programs' root, for a module it misses; the host's modprobe knows how to find and unpack it.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
exec /bin/chroot /root /usr/bin/env modprobe "$@"
