//! [`AccessFlags`]: who may do what with memory, or through a queue pair.

use crate::error::{Error, Result};
use crate::ffi::ibv_access_flags as A;

bitflags::bitflags! {
    /// `enum ibv_access_flags`: what a memory region, or a queue pair, allows. The local device may always read.
    #[doc(alias = "ibv_access_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The local device may write: receives, and the data of RDMA READs and atomics.
        const LOCAL_WRITE = A::IBV_ACCESS_LOCAL_WRITE.0;
        /// Peers may write by RDMA WRITE. On a region, [`LOCAL_WRITE`](Self::LOCAL_WRITE) is needed too.
        const REMOTE_WRITE = A::IBV_ACCESS_REMOTE_WRITE.0;
        /// Peers may read by RDMA READ.
        const REMOTE_READ = A::IBV_ACCESS_REMOTE_READ.0;
        /// Peers may use atomic operations. On a region, [`LOCAL_WRITE`](Self::LOCAL_WRITE) is needed too.
        const REMOTE_ATOMIC = A::IBV_ACCESS_REMOTE_ATOMIC.0;
        /// Memory windows may be bound to the region.
        const MW_BIND = A::IBV_ACCESS_MW_BIND.0;
        /// Peers may flush what was written to where every processor sees it (`IBV_ACCESS_FLUSH_GLOBAL`, which `verbs.h` names from
        /// release 45 of rdma-core on).
        #[doc(alias = "IBV_ACCESS_FLUSH_GLOBAL")]
        const FLUSH_GLOBAL = 1 << 8;
        /// Peers may flush what was written to where it survives a loss of power (`IBV_ACCESS_FLUSH_PERSISTENT`, likewise). The region
        /// has to be of persistent memory.
        #[doc(alias = "IBV_ACCESS_FLUSH_PERSISTENT")]
        const FLUSH_PERSISTENT = 1 << 9;
        /// Addresses in the region, or in the memory window, begin at 0.
        const ZERO_BASED = A::IBV_ACCESS_ZERO_BASED.0;
        /// The region is paged in on demand, and not pinned.
        const ON_DEMAND = A::IBV_ACCESS_ON_DEMAND.0;
        /// The region lies in huge pages (for on-demand paging).
        const HUGETLB = A::IBV_ACCESS_HUGETLB.0;
        /// The bus may reorder the device's accesses: faster, and a later write may be seen before an earlier one.
        const RELAXED_ORDERING = A::IBV_ACCESS_RELAXED_ORDERING.0;
    }
}

impl AccessFlags {
    /// Every right that a peer can have through a window or a queue pair of any device.
    pub(crate) const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);

    /// What makes a peer need a region's key.
    pub(crate) const NEED_RKEY: Self =
        Self::REMOTE.union(Self::MW_BIND).union(Self::FLUSH_GLOBAL).union(Self::FLUSH_PERSISTENT);

    /// Checks the rules for memory regions, which not every device checks.
    pub(crate) fn check_for_memory(self, writable: bool) -> Result<()> {
        const NEED_LOCAL_WRITE: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_ATOMIC);
        let invalid = |rule: &str| Err(Error::invalid("ibv_reg_mr", "access", format!("{self:?}"), rule));
        if !writable && self.intersects(NEED_LOCAL_WRITE | Self::LOCAL_WRITE | Self::MW_BIND) {
            return invalid("the buffer is read-only, so nobody can be given the right to write to it");
        }
        if self.intersects(NEED_LOCAL_WRITE) && !self.contains(Self::LOCAL_WRITE) {
            return invalid("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too");
        }
        Ok(())
    }

    /// Checks the rules for a memory window that is bound to a region with the rights `region`.
    pub(crate) fn check_for_window(self, region: Self) -> Result<()> {
        const NEED_LOCAL_WRITE: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_ATOMIC);
        let invalid = |rule: &str| Err(Error::invalid("ibv_bind_mw", "access", format!("{self:?}"), rule));
        if !region.contains(Self::MW_BIND) {
            return invalid("the region was registered without MW_BIND");
        }
        if !(Self::REMOTE | Self::ZERO_BASED).contains(self) {
            return invalid("a window gives remote rights only, and may be ZERO_BASED");
        }
        if self.intersects(NEED_LOCAL_WRITE) && !region.contains(Self::LOCAL_WRITE) {
            return invalid("REMOTE_WRITE and REMOTE_ATOMIC need a region with LOCAL_WRITE");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(rdma_core_45)]
    #[test]
    fn the_rights_to_flush_are_those_of_the_header() {
        assert_eq!(AccessFlags::FLUSH_GLOBAL.bits(), A::IBV_ACCESS_FLUSH_GLOBAL.0);
        assert_eq!(AccessFlags::FLUSH_PERSISTENT.bits(), A::IBV_ACCESS_FLUSH_PERSISTENT.0);
    }

    #[test]
    fn a_right_to_write_needs_local_write_and_writable_memory() {
        for flags in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC, AccessFlags::REMOTE] {
            assert!(flags.check_for_memory(true).unwrap_err().to_string().contains("need LOCAL_WRITE too"));
            (flags | AccessFlags::LOCAL_WRITE).check_for_memory(true).unwrap();
            assert!(flags.check_for_memory(false).unwrap_err().to_string().contains("read-only"));
        }
        for flags in [AccessFlags::empty(), AccessFlags::REMOTE_READ] {
            flags.check_for_memory(true).unwrap();
            flags.check_for_memory(false).unwrap();
        }
    }

    #[test]
    fn a_window_gives_remote_rights_that_its_region_can_bear() {
        let error = |window: AccessFlags, region| window.check_for_window(region).unwrap_err().to_string();
        let bind = AccessFlags::MW_BIND;
        assert!(error(AccessFlags::REMOTE_READ, AccessFlags::REMOTE).contains("without MW_BIND"));
        assert!(error(AccessFlags::LOCAL_WRITE, bind | AccessFlags::LOCAL_WRITE).contains("remote rights only"));
        for write in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
            assert!(error(write, bind).contains("need a region with LOCAL_WRITE"));
            (write | AccessFlags::ZERO_BASED).check_for_window(bind | AccessFlags::LOCAL_WRITE).unwrap();
        }
        AccessFlags::REMOTE_READ.check_for_window(bind).unwrap();
    }
}
