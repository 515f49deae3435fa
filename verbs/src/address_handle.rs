//! [`AddressHandle`]: where a datagram goes.
//!
//! # Safety
//!
//! `Inner::ah` came from `ibv_create_ah` or `ibv_create_ah_from_wc` in the domain, and is destroyed only when `Inner` is dropped.
//! Whoever hands it to a provider has looked that the queue pair [is of the same context](AddressHandle::fits): providers find their
//! own data behind it.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::address_handle_attributes::{AddressHandleAttributes, from_multicast, raw_source};
use crate::context::must_be_made_of;
use crate::datagram::Datagram;
use crate::endpoint::{Endpoint, LocalEndpoint};
use crate::error::Result;
use crate::ffi;
use crate::grh::Grh;
use crate::protection_domain::ProtectionDomain;
use crate::returns::{Errno, null_and_errno};

struct Inner {
    ah: NonNull<ffi::ibv_ah>,
    // Freed after the address handle is destroyed.
    pd: ProtectionDomain,
}

// SAFETY: an address handle is only passed to libibverbs, which does not write to it.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the address handle is alive, and is destroyed only here. A provider does not look at it after a post.
        let _ = unsafe { ffi::ibv_destroy_ah(self.ah.as_ptr()) };
    }
}

/// `struct ibv_ah`: a path to another port, or to a multicast group, for the requests of UD queue pairs of the same domain.
///
/// A clone is another handle to the same object; it is destroyed when the last one is dropped.
///
/// **Keep it until the requests that name it have completed.** The process is safe in any case: a provider has no use for the
/// object's memory once a request is posted. But the device may look the path up later, and if it is gone by then, the request
/// fails; on rxe the queue pair then goes to ERROR.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{Endpoint, LocalSlice, QueuePair, LocalEndpoint, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, local: LocalEndpoint, remote: Endpoint, slices: &[LocalSlice<'_>]) -> verbs::Result<()> {
/// let ah = qp.protection_domain().create_address_handle_to(&local, &remote)?;
/// qp.post_send(&SendRequest::send_to(1, slices, &ah, remote.qp_num, 0x1111_1111).signaled())?;
/// # Ok(()) }
/// ```
///
/// It cannot go away while a request that names it waits to be posted:
///
/// ```compile_fail,E0505
/// # use verbs::{AddressHandle, LocalSlice, QueuePair, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, ah: AddressHandle, slices: &[LocalSlice<'_>]) -> verbs::Result<()> {
/// let request = SendRequest::send_to(1, slices, &ah, 0x11, 0x1111_1111);
/// drop(ah);
/// qp.post_send(&request)?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_ah")]
#[derive(Clone)]
pub struct AddressHandle {
    // Copied from `inner`, so that a request is built with one load less.
    ah: NonNull<ffi::ibv_ah>,
    inner: Arc<Inner>,
}

// SAFETY: `inner`, which owns the object, can be sent.
unsafe impl Send for AddressHandle {}
// SAFETY: `inner` can be shared.
unsafe impl Sync for AddressHandle {}

impl ProtectionDomain {
    /// `ibv_create_ah`: makes an address handle.
    ///
    /// On RoCE the kernel first resolves the link address of the remote GID, which can take a second.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): a value does not fit its field.
    /// * `EINVAL`, `ENODATA`: the port does not exist, its GID at that index neither, or the link layer needs a GID and there is
    ///   none; the message says which.
    /// * `ETIMEDOUT`: nobody answers at the remote GID.
    /// * `ENOMEM`: the device has no more of them.
    ///
    /// # References
    ///
    /// [ibv_create_ah(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 11.2.2.1.
    #[doc(alias = "ibv_create_ah")]
    pub fn create_address_handle(&self, attributes: &AddressHandleAttributes) -> Result<AddressHandle> {
        const VERB: &str = "ibv_create_ah";
        attributes.check(VERB)?;
        let mut raw = attributes.to_raw();
        // SAFETY: the domain is alive, and the structure outlives the call.
        let ah = null_and_errno(unsafe { ffi::ibv_create_ah(self.as_raw(), &mut raw) })
            .map_err(|errno| errno.with_remedy(VERB, format_args!("{attributes:?}"), self.remedy(errno, attributes)))?;
        Ok(self.own(ah))
    }

    /// `ibv_create_ah`: makes an address handle for the way from a local end to a remote one.
    ///
    /// # Errors
    ///
    /// As those of [`AddressHandleAttributes::between`] and of [`create_address_handle`](Self::create_address_handle).
    ///
    /// # References
    ///
    /// [ibv_create_ah(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
    #[doc(alias = "ibv_create_ah")]
    pub fn create_address_handle_to(&self, local: &LocalEndpoint, remote: &Endpoint) -> Result<AddressHandle> {
        self.create_address_handle(&AddressHandleAttributes::between(local, remote)?)
    }

    /// `ibv_create_ah_from_wc`: makes an address handle for the way back to the sender of a datagram, which arrived at `port`.
    /// `grh` is what [`Datagram::grh`] found.
    ///
    /// # Errors
    ///
    /// As those of [`AddressHandleAttributes::from_completion`] and of [`create_address_handle`](Self::create_address_handle).
    ///
    /// # References
    ///
    /// [ibv_create_ah_from_wc(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah_from_wc.3.html)
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn create_address_handle_from_completion(
        &self,
        port: u8,
        datagram: &Datagram,
        grh: Option<&Grh>,
    ) -> Result<AddressHandle> {
        let (mut wc, mut header) = raw_source(datagram, grh);
        // SAFETY: the domain is alive, and the structures outlive the call.
        let ah = null_and_errno(unsafe { ffi::ibv_create_ah_from_wc(self.as_raw(), &mut wc, &mut header, port) })
            .map_err(|errno| {
                let remedy = match AddressHandleAttributes::from_completion(self.context(), port, datagram, grh) {
                    Ok(attributes) => self.remedy(errno, &attributes),
                    Err(_) => from_multicast(&header),
                };
                errno.with_remedy("ibv_create_ah_from_wc", format_args!("port {port}, {datagram:?}"), remedy)
            })?;
        Ok(self.own(ah))
    }

    fn own(&self, ah: NonNull<ffi::ibv_ah>) -> AddressHandle {
        AddressHandle { ah, inner: Arc::new(Inner { ah, pd: self.clone() }) }
    }

    #[cold]
    fn remedy(&self, errno: Errno, attributes: &AddressHandleAttributes) -> String {
        match errno.0 {
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => attributes.unreachable(self.context()),
            libc::EINVAL | libc::ENODATA | libc::ENOENT => attributes.find_faults(self.context()).join("; "),
            _ => String::new(),
        }
    }
}

impl AddressHandle {
    /// Takes over an address handle that was made by other means. It is destroyed when the last handle to it is gone.
    ///
    /// # Safety
    ///
    /// `ah` is alive, and nobody else destroys it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it was made in another domain. It then still belongs to the caller.
    pub unsafe fn from_raw(ah: NonNull<ffi::ibv_ah>, pd: &ProtectionDomain) -> Result<Self> {
        // SAFETY: the address handle is alive.
        must_be_made_of("ibv_create_ah", &[("pd", unsafe { ah.as_ref().pd } == pd.as_raw())])?;
        Ok(pd.own(ah))
    }

    /// The domain in which it was made.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// The address handle in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_ah {
        self.ah.as_ptr()
    }

    /// Whether queue pairs of domain `pd` can use `ah`: whether it is of the same domain.
    ///
    /// # Safety
    ///
    /// Both are alive.
    #[inline]
    pub(crate) unsafe fn fits(ah: *const ffi::ibv_ah, pd: *const ffi::ibv_pd) -> bool {
        // SAFETY: the address handle is alive.
        let own = unsafe { (*ah).pd };
        // SAFETY: its domain is, too.
        std::ptr::eq(own, pd) || unsafe { is_same_domain(own, pd) }
    }
}

/// Whether two domains are one to the kernel: a parent domain and the domain that it was made of.
///
/// # Safety
///
/// Both are alive.
#[cold]
unsafe fn is_same_domain(one: *const ffi::ibv_pd, other: *const ffi::ibv_pd) -> bool {
    // SAFETY: as the caller says.
    unsafe { std::ptr::eq((*one).context, (*other).context) && (*one).handle == (*other).handle }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle")
            .field("device", &self.inner.pd.context().device().name())
            .finish_non_exhaustive()
    }
}
