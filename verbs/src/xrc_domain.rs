//! [`XrcDomain`]: what the receiving ends of extended reliable connections share.
//!
//! # Safety
//!
//! `Inner::xrcd` came from `ibv_open_xrcd`, is closed only when `Inner` is dropped, and every object made in it holds the `Inner`.
#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::{Context, must_be_made_of};
use crate::error::Result;
use crate::ffi;
use crate::ffi::ibv_xrcd_init_attr_mask as Mask;
use crate::returns::null_and_errno;

struct Inner {
    xrcd: NonNull<ffi::ibv_xrcd>,
    // Closed after the domain is.
    context: Context,
}

// SAFETY: a domain is only passed to libibverbs, which takes its own locks.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the domain is open, and every object made in it held us and is gone.
        let _ = unsafe { ffi::ibv_close_xrcd(self.xrcd.as_ptr()) };
    }
}

/// `struct ibv_xrcd`: an extended reliable connection domain. A message that arrives at a
/// [receiving end](crate::XrcReceiveQueuePair) in it names the [shared receive queue](crate::SharedReceiveQueueBuilder::build_xrc) of
/// the same domain that it is for.
///
/// A clone is another handle to the same domain.
#[doc(alias = "ibv_xrcd")]
#[derive(Clone)]
pub struct XrcDomain {
    inner: Arc<Inner>,
}

impl Context {
    /// `ibv_open_xrcd`: makes a domain that no other process can open.
    ///
    /// # Errors
    ///
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    /// * `ENOMEM`: the device has no more of them.
    ///
    /// # References
    ///
    /// [ibv_open_xrcd(3)](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html); InfiniBand Architecture Specification, volume 1,
    /// annex A14.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn create_xrc_domain(&self) -> Result<XrcDomain> {
        self.open(-1, "of its own")
    }

    /// `ibv_open_xrcd`: opens the domain that belongs to a file, or makes it. Processes that open the same file share it.
    ///
    /// # Errors
    ///
    /// As those of [`create_xrc_domain`](Self::create_xrc_domain).
    ///
    /// # References
    ///
    /// [ibv_open_xrcd(3)](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html)
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrc_domain(&self, file: impl AsFd) -> Result<XrcDomain> {
        self.open(file.as_fd().as_raw_fd(), "of a file")
    }

    fn open(&self, fd: i32, whose: &str) -> Result<XrcDomain> {
        let mut attributes = ffi::ibv_xrcd_init_attr {
            comp_mask: Mask::IBV_XRCD_INIT_ATTR_FD.0 | Mask::IBV_XRCD_INIT_ATTR_OFLAGS.0,
            fd,
            oflags: libc::O_CREAT,
        };
        // SAFETY: the context is open, and `attributes` and the descriptor, which the caller borrowed, outlive the call.
        let xrcd = null_and_errno(unsafe { ffi::ibv_open_xrcd(self.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of("ibv_open_xrcd", format_args!("{}, a domain {whose}", self.device().name())))?;
        Ok(XrcDomain { inner: Arc::new(Inner { xrcd, context: self.clone() }) })
    }
}

impl XrcDomain {
    /// Takes over a domain that was made by other means. It is destroyed when the last handle, and the last object that holds it, are gone.
    ///
    /// # Safety
    ///
    /// * `xrcd` is alive, and nobody else destroys it.
    /// * What was made in it by other means is gone before the last handle is.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it was made in another context. It then still belongs to the caller.
    pub unsafe fn from_raw(xrcd: NonNull<ffi::ibv_xrcd>, context: &Context) -> Result<Self> {
        // SAFETY: the caller says that it is alive.
        must_be_made_of("ibv_open_xrcd", &[("context", unsafe { xrcd.as_ref().context } == context.as_raw())])?;
        Ok(Self { inner: Arc::new(Inner { xrcd, context: context.clone() }) })
    }

    /// The context in which the domain was opened.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The domain in libibverbs' terms; valid as long as `self`, and not to be closed.
    pub fn as_raw(&self) -> *mut ffi::ibv_xrcd {
        self.inner.xrcd.as_ptr()
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain").field("device", &self.context().device().name()).finish()
    }
}
