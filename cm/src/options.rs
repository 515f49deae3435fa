//! `rdma_set_option`, and the vendor's options of a connection.
//!
//! # Safety
//!
//! As in `id.rs`. An option's value is as long as its type says.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use verbs::{AckTimeout, EnhancedConnection};

use crate::error::Result;
use crate::ffi;
use crate::id::Id;
use crate::port_space::Carrier;

impl Id {
    /// # Safety
    ///
    /// `value` has the type of the option.
    unsafe fn set_option<T: Copy>(&self, level: u32, option: u32, mut value: T, name: &'static str) -> Result<()> {
        let pointer: *mut c_void = (&raw mut value).cast();
        self.raw()
            // SAFETY: the id is alive, and the value outlives the call.
            .call(|id| unsafe { ffi::rdma_set_option(id, level as c_int, option as c_int, pointer, size_of::<T>()) })
            .map_err(|errno| errno.of("rdma_set_option", format_args!("{self:?}, {name}")))
    }

    /// `rdma_set_option`, `RDMA_OPTION_ID_TOS`: the type of service of the connection's packets, 8 bits as in RFC 2474. Set it before the
    /// route is resolved.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the id is of a port space that has no such option. Other numbers are the kernel's.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    pub fn set_type_of_service(&self, type_of_service: u8) -> Result<()> {
        // SAFETY: the type is a byte.
        unsafe { self.set_option(ffi::RDMA_OPTION_ID, ffi::RDMA_OPTION_ID_TOS, type_of_service, "RDMA_OPTION_ID_TOS") }
    }

    /// `rdma_set_option`, `RDMA_OPTION_ID_REUSEADDR`: whether the id may be bound to an address that another id has which allows it too.
    /// Both can connect from it; neither can listen there as long as the other has it. Set it before binding.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the id listens or connects already, and `reuse` is false.
    ///
    /// # References
    ///
    /// As those of [`set_type_of_service`](Self::set_type_of_service).
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    pub fn set_reuse_address(&self, reuse: bool) -> Result<()> {
        let (value, name) = (c_int::from(reuse), "RDMA_OPTION_ID_REUSEADDR");
        // SAFETY: the type is `int`.
        unsafe { self.set_option(ffi::RDMA_OPTION_ID, ffi::RDMA_OPTION_ID_REUSEADDR, value, name) }
    }

    /// `rdma_set_option`, `RDMA_OPTION_ID_AFONLY`: whether a listener on `::` is for IPv6 only. Set it before binding.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the id listens or connects already.
    ///
    /// # References
    ///
    /// As those of [`set_type_of_service`](Self::set_type_of_service).
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub fn set_ipv6_only(&self, only: bool) -> Result<()> {
        let (value, name) = (c_int::from(only), "RDMA_OPTION_ID_AFONLY");
        // SAFETY: the type is `int`.
        unsafe { self.set_option(ffi::RDMA_OPTION_ID, ffi::RDMA_OPTION_ID_AFONLY, value, name) }
    }

    /// `rdma_set_option`, `RDMA_OPTION_ID_ACK_TIMEOUT`: how long the connection's queue pair waits for an acknowledgement. Set it before
    /// connecting.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the id is of a datagram port space.
    ///
    /// # References
    ///
    /// As those of [`set_type_of_service`](Self::set_type_of_service).
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    pub fn set_ack_timeout(&self, timeout: AckTimeout) -> Result<()> {
        let (value, name) = (timeout.code(), "RDMA_OPTION_ID_ACK_TIMEOUT");
        // SAFETY: the type is a byte.
        unsafe { self.set_option(ffi::RDMA_OPTION_ID, ffi::RDMA_OPTION_ID_ACK_TIMEOUT, value, name) }
    }

    /// `rdma_set_option`, `RDMA_OPTION_IB_PATH`: the path to take, instead of resolving the route: the
    /// [`route`](crate::AddressInfo::route) that an InfiniBand address cache knows.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the bytes are no path records, or the id has no address, or its device is not of InfiniBand.
    ///
    /// # References
    ///
    /// As those of [`set_type_of_service`](Self::set_type_of_service).
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    pub fn set_path(&self, route: &[u8]) -> Result<()> {
        // The call takes a pointer to mutable memory.
        let mut route = route.to_vec();
        let (level, option) = (ffi::RDMA_OPTION_IB as c_int, ffi::RDMA_OPTION_IB_PATH as c_int);
        self.raw()
            // SAFETY: the id is alive, and the bytes outlive the call; the kernel checks how many there are.
            .call(|id| unsafe { ffi::rdma_set_option(id, level, option, route.as_mut_ptr().cast(), route.len()) })
            .map_err(|errno| errno.of("rdma_set_option", format_args!("{self:?}, RDMA_OPTION_IB_PATH")))
    }

    /// `rdma_set_local_ece`: the vendor's options to send with the request or the answer. They are those of the queue pair's
    /// [`enhanced_connection`](verbs::QueuePair::enhanced_connection).
    ///
    /// Connecting and accepting in one call exchange them, where the device has any. Step by step, the order is this:
    ///
    /// 1. Who connects makes the queue pair, sets here what it has, and calls [`connect`](Self::connect).
    /// 2. Who accepts makes its own queue pair, [sets](verbs::QueuePair::set_enhanced_connection) on it what the request
    ///    [brought](Self::remote_ece), asks it what it has now, sets that here, and then calls
    ///    [`connect_queue_pair`](Self::connect_queue_pair) and [`accept`](Self::accept). The answer carries the vendor's identifier of the
    ///    request.
    /// 3. Who connects sets on its queue pair what the answer brought, and then calls
    ///    [`connect_queue_pair`](Self::connect_queue_pair) and [`establish`](Self::establish).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the vendor's identifier is 0.
    ///
    /// # References
    ///
    /// [rdma_set_local_ece(3)](https://man7.org/linux/man-pages/man3/rdma_set_local_ece.3.html)
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_local_ece(&self, options: &EnhancedConnection) -> Result<()> {
        let EnhancedConnection { vendor_id, options, comp_mask, .. } = *options;
        let mut ece = verbs::ffi::ibv_ece { vendor_id, options, comp_mask };
        self.raw()
            // SAFETY: the id is alive, and the structure outlives the call.
            .call(|id| unsafe { ffi::rdma_set_local_ece(id, &mut ece) })
            .map_err(|errno| {
                errno.of("rdma_set_local_ece", format_args!("vendor {vendor_id:#x}, options {options:#x}"))
            })
    }

    /// `rdma_get_remote_ece`: the vendor's options that the peer sent; the vendor's identifier is 0 if it sent none.
    ///
    /// # Errors
    ///
    /// None are known.
    ///
    /// # References
    ///
    /// [rdma_get_remote_ece(3)](https://man7.org/linux/man-pages/man3/rdma_get_remote_ece.3.html)
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<EnhancedConnection> {
        let mut ece = verbs::ffi::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        self.raw()
            // SAFETY: the id is alive, and the structure outlives the call.
            .call(|id| unsafe { ffi::rdma_get_remote_ece(id, &mut ece) })
            .map_err(|errno| errno.of("rdma_get_remote_ece", format_args!("{self:?}")))?;
        Ok(EnhancedConnection::new(ece.vendor_id, ece.options))
    }

    /// `rdma_reject_ece`: refuses the request that this id came with because of the vendor's options that it carries; the peer may ask
    /// again without.
    ///
    /// # Errors
    ///
    /// As those of [`reject`](Self::reject).
    ///
    /// # References
    ///
    /// [rdma_set_local_ece(3)](https://man7.org/linux/man-pages/man3/rdma_set_local_ece.3.html)
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_ece(&self, private_data: &[u8]) -> Result<()> {
        const CALL: &str = "rdma_reject_ece";
        let length = self.port_space().check(Carrier::Reject, CALL, private_data)?;
        let bytes = private_data.as_ptr().cast();
        // SAFETY: the id is alive, and the bytes outlive the call.
        let called = self.raw().answer(CALL, false, |id| unsafe { ffi::rdma_reject_ece(id, bytes, length) })?;
        called.map_err(|errno| errno.of(CALL, format_args!("{self:?}")))
    }
}
