//! Where an [`Id`] is: its addresses, and the device that it belongs to.
//!
//! # Safety
//!
//! As in `id.rs`. Each member of the unions in `rdma_addr` is made of integers.
#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::ptr::NonNull;

use verbs::{Context, Gid, PartitionKey, ProtectionDomain};

use crate::address;
use crate::device::{self, CmDevice};
use crate::error::{Error, Result};
use crate::ffi;
use crate::id::Id;
use crate::raw_id::NO_DEVICE_YET;

impl Id {
    /// The local address, with its port in the id's port space; `None`: it has none.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: the id is alive, and its address does not change under the lock.
        self.raw().with(|id| unsafe { address::read(ffi::rdma_get_local_addr(id.as_ptr())) })
    }

    /// The peer's address; `None`: there is none.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        self.raw().with(|id| unsafe { address::read(ffi::rdma_get_peer_addr(id.as_ptr())) })
    }

    /// The device to which the id belongs, opened by librdmacm; it is never closed. Queue pairs for this id have to be made of it.
    ///
    /// # Errors
    ///
    /// [`Error::WrongState`]: no address was resolved, and the id is not bound to one.
    pub fn context(&self) -> Result<Context> {
        Ok(self.device()?.context)
    }

    /// librdmacm's protection domain on the id's device: all ids of the device have the same. It is never deallocated.
    ///
    /// Memory that is registered in it can be used through every queue pair that is made in it. Where peers must not reach each other's
    /// memory, [make](Context::create_protection_domain) a domain for each.
    ///
    /// # Errors
    ///
    /// As those of [`context`](Self::context).
    pub fn protection_domain(&self) -> Result<ProtectionDomain> {
        self.device()?.pd.ok_or(Error::WrongState { call: "Id::protection_domain", rule: NO_DEVICE_YET })
    }

    fn device(&self) -> Result<CmDevice> {
        let (context, pd) = self.raw().with(|id| {
            // SAFETY: the id is alive, and the lock is held.
            let id = unsafe { id.as_ref() };
            (NonNull::new(id.verbs), NonNull::new(id.pd))
        });
        let context = context.ok_or(Error::WrongState { call: "Id::context", rule: NO_DEVICE_YET })?;
        // SAFETY: both are the id's, which the lender keeps.
        unsafe { device::of_id(context, pd, self.share()) }
    }

    /// The port of the device, from 1; 0: the id belongs to no device yet.
    pub fn port(&self) -> u8 {
        // SAFETY: the id is alive, and the lock is held.
        self.raw().with(|id| unsafe { id.as_ref() }.port_num)
    }

    /// The GID that the id sends from; all zeroes: not known yet.
    pub fn local_gid(&self) -> Gid {
        // SAFETY: as above; each member of the unions is made of integers.
        self.raw().with(|id| Gid::from_bytes(unsafe { id.as_ref().route.addr.addr.ibaddr.sgid.raw }))
    }

    /// The peer's GID; all zeroes: not known yet.
    pub fn peer_gid(&self) -> Gid {
        // SAFETY: as above.
        self.raw().with(|id| Gid::from_bytes(unsafe { id.as_ref().route.addr.addr.ibaddr.dgid.raw }))
    }

    /// The partition key of the path; 0: not known yet, or the link is RoCE, which has the default one only.
    pub fn partition_key(&self) -> PartitionKey {
        // SAFETY: as above.
        let key = self.raw().with(|id| unsafe { id.as_ref().route.addr.addr.ibaddr.pkey });
        PartitionKey::new(u16::from_be(key))
    }
}
