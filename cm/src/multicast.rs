//! [`MulticastMembership`] and [`MulticastGroup`].
//!
//! # Safety
//!
//! * As in `id.rs`. The context that a join is given is the number of its key, not an address.
//! * A membership holds its id. librdmacm knows a membership by its address, and leaves the last one of those with the same address: an
//!   id is in a group once.
#![allow(unsafe_code)]

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use verbs::{AddressHandle, MulticastAttachment, QueuePair, Ud};

use crate::address::RawAddress;
use crate::connection_options::{ConnectionOptions, Deadline};
use crate::error::{Error, Result};
use crate::event::{DatagramPeer, EventKind};
use crate::ffi;
use crate::ffi::rdma_cm_join_mc_attr_mask as M;
use crate::ffi::rdma_cm_mc_join_flags as F;
use crate::id::Id;
use crate::port_space::PortSpace;
use crate::raw_id::IdKey;

/// What a member of a multicast group does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MulticastRole {
    /// It receives, and may send.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    #[default]
    Full,
    /// It only sends. Not every subnet manager knows of it; RoCE needs kernel 5.16.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    SendOnly,
}

/// Membership in a multicast group, which ends when it is dropped.
#[must_use = "dropping a membership leaves the group"]
pub struct MulticastMembership {
    id: Id,
    group: SocketAddr,
    key: IdKey,
    is_left: bool,
}

impl Id {
    /// `rdma_join_multicast_ex`: joins a multicast group. [`MulticastJoin`](EventKind::MulticastJoin), with the address to send to, or
    /// [`MulticastError`](EventKind::MulticastError) tells the outcome. To receive, a queue pair has to be
    /// [attached](QueuePair::attach_multicast) to the group's GID as well.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the address is not that of a group, or the id is in the group already.
    /// * `EINVAL`: the id belongs to no device. `EOPNOTSUPP`: the role is not supported.
    ///
    /// # References
    ///
    /// [rdma_join_multicast_ex(3)](https://man7.org/linux/man-pages/man3/rdma_join_multicast_ex.3.html)
    #[doc(alias = "rdma_join_multicast")]
    #[doc(alias = "rdma_join_multicast_ex")]
    pub fn join_multicast(&self, group: IpAddr, role: MulticastRole) -> Result<MulticastMembership> {
        const CALL: &str = "rdma_join_multicast";
        if !group.is_multicast() {
            let rule = "a multicast group has an address of 224.0.0.0/4 or of ff00::/8";
            return Err(Error::invalid(CALL, "the group", group, rule));
        }
        let mut groups = self.raw().groups();
        if groups.contains(&group) {
            return Err(Error::invalid(
                CALL,
                "the group",
                group,
                "the id has a membership of it, and can have one only",
            ));
        }
        let ip = group;
        let group = SocketAddr::new(group, 0);
        let mut raw = RawAddress::from(group);
        let mut attributes = ffi::rdma_cm_join_mc_attr_ex {
            comp_mask: (M::RDMA_CM_JOIN_MC_ATTR_ADDRESS | M::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS).0,
            join_flags: match role {
                MulticastRole::Full => F::RDMA_MC_JOIN_FLAG_FULLMEMBER.0,
                MulticastRole::SendOnly => F::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER.0,
            },
            addr: raw.as_mut_ptr(),
        };
        let key = IdKey::next();
        self.raw()
            // SAFETY: the id is alive, and the structures outlive the call.
            .call(|id| unsafe { ffi::rdma_join_multicast_ex(id, &mut attributes, key.to_context()) })
            .map_err(|errno| errno.of(CALL, format_args!("{self:?}, {group}, {role:?}")))?;
        groups.push(ip);
        Ok(MulticastMembership { id: self.share(), group, key, is_left: false })
    }
}

impl MulticastMembership {
    /// Which membership the events are of.
    pub fn key(&self) -> IdKey {
        self.key
    }

    /// The group's address.
    pub fn group(&self) -> IpAddr {
        self.group.ip()
    }

    /// `rdma_leave_multicast`: leaves the group, as dropping does.
    ///
    /// # Errors
    ///
    /// The kernel's; the membership is over all the same.
    ///
    /// # References
    ///
    /// [rdma_leave_multicast(3)](https://man7.org/linux/man-pages/man3/rdma_leave_multicast.3.html)
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_left, true) {
            return Ok(());
        }
        let mut groups = self.id.raw().groups();
        let mut raw = RawAddress::from(self.group);
        // SAFETY: the address outlives the call.
        let result = unsafe { self.id.raw().leave_multicast(raw.as_mut_ptr()) };
        // If the device is gone, it stays a member to the end: nothing can be joined there any more.
        groups.retain(|group| *group != self.group.ip());
        drop(groups);
        result.map_err(|errno| errno.of("rdma_leave_multicast", self.group.ip()))
    }
}

impl Drop for MulticastMembership {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl fmt::Debug for MulticastMembership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MulticastMembership({} of {:?})", self.group.ip(), self.id)
    }
}

/// A queue pair in a multicast group. Made by [`ConnectionOptions::join_multicast`].
#[derive(Debug)]
pub struct MulticastGroup {
    // Dropped in this order: detached, left, destroyed.
    attachment: Option<MulticastAttachment>,
    membership: MulticastMembership,
    address_handle: AddressHandle,
    queue_pair: QueuePair<Ud>,
    address: DatagramPeer,
    id: Id,
}

impl ConnectionOptions {
    /// Joins a multicast group with a queue pair of its own, through the device that leads there, or through that of `source`. Post
    /// receives, each with [40 bytes](verbs::Grh::LEN) more than its message, before anybody sends.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the address is not that of a group.
    /// * [`Error::AddressUnresolved`], [`Error::Multicast`], [`Error::TimedOut`]; those of the queue pair's making.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> cm::Result<()> {
    /// use verbs::{AccessFlags, ReceiveRequest, SendRequest};
    ///
    /// let group = cm::ConnectionOptions::default().join_multicast("239.1.2.3".parse().unwrap(), Default::default())?;
    /// let pd = group.queue_pair().protection_domain();
    /// let mut region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;
    /// group.queue_pair().post_receive(&ReceiveRequest::new(1, &[region.slice(2048..)?]))?;
    /// region.write_at(0, b"hello")?;
    /// let (handle, to) = (group.address_handle(), group.address());
    /// let message = [region.slice(..5)?];
    /// let request = SendRequest::send_to(2, &message, handle, to.qp_num, to.qkey);
    /// group.queue_pair().post_send(&request)?;
    /// # Ok(()) }
    /// ```
    pub fn join_multicast(&self, group: IpAddr, role: MulticastRole) -> Result<MulticastGroup> {
        let deadline = Deadline::after(self.timeout);
        if !group.is_multicast() {
            return Err(Error::invalid(
                "rdma_join_multicast",
                "the group",
                group,
                "an address of 224.0.0.0/4 or of ff00::/8 is",
            ));
        }
        let address = SocketAddr::new(group, 0);
        let id = self.resolve_device(PortSpace::UDP, address, &deadline)?;
        let queue_pair = self.build::<Ud>(&id)?;
        id.activate_queue_pair(&queue_pair)?;
        let membership = id.join_multicast(group, role)?;
        let peer = loop {
            match id.wait_for_event(&deadline, "rdma_join_multicast")? {
                EventKind::MulticastJoin { membership: key, group } if key == membership.key() => break group,
                EventKind::MulticastError { errno, .. } => return Err(Error::Multicast { group: address, errno }),
                EventKind::DeviceRemoval => return Err(Error::DeviceRemoved),
                _ => {}
            }
        };
        let address_handle = queue_pair.protection_domain().create_address_handle(&peer.address)?;
        let attachment = match (role, &peer.address.global_route) {
            (MulticastRole::Full, Some(route)) => {
                Some(queue_pair.attach_multicast(route.destination, peer.address.lid)?)
            }
            _ => None,
        };
        Ok(MulticastGroup { attachment, membership, address_handle, queue_pair, address: peer, id })
    }
}

impl MulticastGroup {
    /// The queue pair that is in the group.
    pub fn queue_pair(&self) -> &QueuePair<Ud> {
        &self.queue_pair
    }

    /// How to reach the group: the path, the number of the queue pair that means all members, and the Q_Key.
    pub fn address(&self) -> &DatagramPeer {
        &self.address
    }

    /// The handle of the path to the group.
    pub fn address_handle(&self) -> &AddressHandle {
        &self.address_handle
    }

    /// The membership.
    pub fn membership(&self) -> &MulticastMembership {
        &self.membership
    }

    /// Whether messages to the group arrive here.
    pub fn is_receiver(&self) -> bool {
        self.attachment.is_some()
    }

    /// The id that is a member.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Leaves the group. The queue pair stays: what has arrived is still in its queue, and it can send and receive otherwise.
    ///
    /// # Errors
    ///
    /// * [`Error::Verbs`]: the queue pair could not be detached.
    /// * As those of [`MulticastMembership::leave`].
    pub fn leave(self) -> Result<QueuePair<Ud>> {
        let Self { attachment, membership, queue_pair, .. } = self;
        if let Some(attachment) = attachment {
            attachment.detach().map_err(|(_, error)| error)?;
        }
        membership.leave()?;
        Ok(queue_pair)
    }
}
