//! [`MulticastAttachment`]: a UD queue pair that receives what is sent to a group.
//!
//! # Safety
//!
//! As long as there is a group in `Attachments::groups`, the queue pair `Attachments::qp` is alive: its owner empties the list before it
//! destroys the queue pair, and only its owner adds to it. Whoever uses the pointer holds the lock meanwhile.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::address_handle_attributes::MULTICAST_RULE;
use crate::error::{Error, Result};
use crate::ffi;
use crate::gid::Gid;
use crate::queue_pair::QueuePair;
use crate::returns::{Errno, zero_or_errno};
use crate::transport::Ud;

/// The queue pair number that datagrams to a multicast group are sent to.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 10.5.2.
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// The groups that a queue pair is attached to. The queue pair and its [`MulticastAttachment`]s share it, and can go in any order.
pub(super) struct Attachments {
    qp: NonNull<ffi::ibv_qp>,
    /// Each with the number of its attachments: the kernel counts a second one of a queue pair as none.
    groups: Mutex<Vec<(Group, usize)>>,
}

// SAFETY: the pointer is only passed to libibverbs, under the lock, as long as the queue pair is alive; libibverbs takes its own locks.
unsafe impl Send for Attachments {}
// SAFETY: as above.
unsafe impl Sync for Attachments {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    gid: Gid,
    lid: u16,
}

type Verb = unsafe extern "C" fn(*mut ffi::ibv_qp, *const ffi::ibv_gid, u16) -> i32;

impl Attachments {
    pub(super) fn new(qp: NonNull<ffi::ibv_qp>) -> Self {
        Self { qp, groups: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Group, usize)>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the verb for a group.
    ///
    /// # Safety
    ///
    /// The caller holds the lock, and the queue pair is alive.
    unsafe fn call(&self, verb: Verb, group: Group) -> Result<(), Errno> {
        let gid = ffi::ibv_gid { raw: group.gid.to_bytes() };
        // SAFETY: the queue pair is alive, and the GID outlives the call.
        zero_or_errno(unsafe { verb(self.qp.as_ptr(), &gid, group.lid) })
    }

    fn attach(&self, group: Group) -> Result<(), Errno> {
        let mut groups = self.lock();
        if let Some((_, count)) = groups.iter_mut().find(|(other, _)| *other == group) {
            *count += 1;
            return Ok(());
        }
        // SAFETY: the lock is held, and the queue pair alive: its owner has called.
        unsafe { self.call(ffi::ibv_attach_mcast, group) }?;
        groups.push((group, 1));
        Ok(())
    }

    /// On failure nothing has changed.
    fn detach(&self, group: Group) -> Result<(), Errno> {
        let mut groups = self.lock();
        let Some(index) = groups.iter().position(|(other, _)| *other == group) else {
            // The queue pair is gone, and left the group before.
            return Ok(());
        };
        if groups[index].1 == 1 {
            // SAFETY: the lock is held, and the queue pair alive: the group is in the list.
            unsafe { self.call(ffi::ibv_detach_mcast, group) }?;
        }
        groups[index].1 -= 1;
        groups.retain(|(_, count)| *count > 0);
        Ok(())
    }

    /// Leaves all groups, since the queue pair is about to be destroyed: the kernel refuses to destroy one that is in a group.
    pub(super) fn close(&self) {
        for (group, _) in self.lock().drain(..) {
            // SAFETY: the lock is held, and the queue pair alive: its owner has called.
            let _ = unsafe { self.call(ffi::ibv_detach_mcast, group) };
        }
    }
}

/// A multicast group that a UD queue pair is attached to, made by [`QueuePair::attach_multicast`]. Dropping it detaches the queue pair;
/// so does dropping the queue pair.
#[must_use = "dropping it detaches the queue pair from the group at once"]
pub struct MulticastAttachment {
    /// `None` once it was detached.
    attachments: Option<Arc<Attachments>>,
    group: Group,
}

impl QueuePair<Ud> {
    /// `ibv_attach_mcast`: from now on, the queue pair receives datagrams that are sent to a multicast group with its Q_Key.
    ///
    /// `group` is the group's GID (MGID), `lid` its LID (MLID), 0 on RoCE. Attaching is one half; the other is to have the network
    /// deliver the group's packets to the port: by a join with the subnet administrator on InfiniBand, with the kernel on RoCE. The
    /// connection manager does both. A queue pair that is attached to a group several times gets each datagram once, and leaves the
    /// group when the last attachment is gone.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: `group` is not the GID of a multicast group.
    /// * `EINVAL`: the LID is not that of a multicast group (InfiniBand).
    /// * `ENOMEM`: the device has no more room for groups.
    ///
    /// # References
    ///
    /// [ibv_attach_mcast(3)](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 11.3.1.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&self, group: Gid, lid: u16) -> Result<MulticastAttachment> {
        const VERB: &str = "ibv_attach_mcast";
        if !group.is_multicast() {
            return Err(Error::invalid(VERB, "the multicast group", group, MULTICAST_RULE));
        }
        let Some(attachments) = &self.multicast else {
            return Err(Errno(libc::EOPNOTSUPP).of(VERB, format_args!("{self:?}")));
        };
        let group = Group { gid: group, lid };
        attachments.attach(group).map_err(|errno| errno.of(VERB, format_args!("{self:?}, {group}")))?;
        Ok(MulticastAttachment { attachments: Some(attachments.clone()), group })
    }
}

impl MulticastAttachment {
    /// The group's GID.
    pub fn group(&self) -> Gid {
        self.group.gid
    }

    /// The group's LID; 0 on RoCE.
    pub fn lid(&self) -> u16 {
        self.group.lid
    }

    /// `ibv_detach_mcast`: detaches the queue pair, if this was its last attachment to the group.
    ///
    /// # Errors
    ///
    /// The attachment comes back with the provider's error.
    ///
    /// # References
    ///
    /// [ibv_detach_mcast(3)](https://man7.org/linux/man-pages/man3/ibv_detach_mcast.3.html)
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach(mut self) -> Result<(), (Self, Error)> {
        let Some(attachments) = self.attachments.take() else { return Ok(()) };
        match attachments.detach(self.group) {
            Ok(()) => Ok(()),
            Err(errno) => {
                self.attachments = Some(attachments);
                let error = errno.of("ibv_detach_mcast", self.group);
                Err((self, error))
            }
        }
    }
}

impl Drop for MulticastAttachment {
    fn drop(&mut self) {
        if let Some(attachments) = self.attachments.take() {
            let _ = attachments.detach(self.group);
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}, LID {:#x}", self.gid, self.lid)
    }
}

impl fmt::Debug for MulticastAttachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MulticastAttachment({})", self.group)
    }
}
