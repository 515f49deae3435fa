//! [`leaked_bytes`]: memory that had to be left to the device.

use std::sync::atomic::{AtomicUsize, Ordering};

static LEAKED: AtomicUsize = AtomicUsize::new(0);

/// How many bytes of buffers this process has leaked, because a device refused to let go of them.
///
/// A [`MemoryRegion`](crate::MemoryRegion) that is dropped is deregistered first. If that fails, the device, and through it a peer, may
/// still write to the memory: it is neither freed nor given back, and counted here. The number grows only, and is 0 in a program that
/// has no such fault; watch it, or call [`deregister`](crate::MemoryRegion::deregister), which gives the region back with the reason.
#[doc(alias = "leak")]
pub fn leaked_bytes() -> usize {
    LEAKED.load(Ordering::Relaxed)
}

pub(crate) fn add(bytes: usize) {
    LEAKED.fetch_add(bytes, Ordering::Relaxed);
}
