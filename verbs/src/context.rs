//! [`Context`]: an open device.
//!
//! # Safety
//!
//! `Inner::context` came from `ibv_open_device` and is closed only when `Inner` is dropped, or is open as long as `Inner::lender` lives.
//! Every object made from it holds the `Inner`.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::device::Device;
use crate::device_attributes::DeviceAttributes;
use crate::error::{Error, Result};
use crate::ffi;
use crate::lender::Lender;
use crate::object_id::Objects;
use crate::opened::Opened;
use crate::port::PortAttributes;
use crate::returns::{Errno, zero_or_errno};
use crate::watch::Watch;

struct Inner {
    context: NonNull<ffi::ibv_context>,
    opened: Arc<Opened>,
    // Let go last: the context may then be closed.
    lender: Option<Lender>,
}

// SAFETY: libibverbs' calls on a context take its lock where they write to it, and we reach it through those only.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.lender.is_none() {
            // SAFETY: the context is open, and every object made from it held us and is gone.
            let _ = unsafe { ffi::ibv_close_device(self.context.as_ptr()) };
        }
    }
}

/// `struct ibv_context`: an open device, from which all other objects are made.
///
/// A clone is another handle to the same open device; it is closed when the last handle and the last object made from it
/// are gone.
#[doc(alias = "ibv_context")]
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

impl Context {
    /// # Safety
    ///
    /// `context` is open, has the verbs of the data path, and is of the device that `opened` says. Without a lender nobody else closes it,
    /// or uses it after it is closed; with one it is open as long as the lender lives.
    pub(crate) unsafe fn new(context: NonNull<ffi::ibv_context>, opened: Arc<Opened>, lender: Option<Lender>) -> Self {
        Self { inner: Arc::new(Inner { context, opened, lender }) }
    }

    /// The device that was opened.
    pub fn device(&self) -> &Device {
        &self.inner.opened.device
    }

    /// `ibv_query_device`: the device's limits.
    ///
    /// # Errors
    ///
    /// The error number of the provider.
    ///
    /// # References
    ///
    /// [ibv_query_device(3)](https://man7.org/linux/man-pages/man3/ibv_query_device.3.html)
    #[doc(alias = "ibv_query_device")]
    pub fn device_attributes(&self) -> Result<DeviceAttributes> {
        let mut attributes = MaybeUninit::zeroed();
        // SAFETY: the context is open and `attributes` has room for the structure.
        let code = unsafe { ffi::ibv_query_device(self.as_raw(), attributes.as_mut_ptr()) };
        zero_or_errno(code).map_err(|errno| errno.of("ibv_query_device", self.device().name()))?;
        // SAFETY: all zeroes are a valid structure, and libibverbs wrote valid fields over them.
        Ok(DeviceAttributes { attributes: unsafe { attributes.assume_init() } })
    }

    /// `ibv_query_port`: the attributes of a port. Ports count from 1.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the device has no such port.
    ///
    /// # References
    ///
    /// [ibv_query_port(3)](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
    #[doc(alias = "ibv_query_port")]
    pub fn port(&self, port: u8) -> Result<PortAttributes> {
        let mut attributes = MaybeUninit::zeroed();
        // SAFETY: the context is open and `attributes` has room for the structure.
        let code = unsafe { ffi::ibv_query_port(self.as_raw(), port, attributes.as_mut_ptr()) };
        zero_or_errno(code).map_err(|errno| {
            let remedy = match self.device_attributes() {
                Ok(device) if !(1..=device.port_count()).contains(&port) => {
                    format!("the ports of {} are 1 to {}", self.device().name(), device.port_count())
                }
                _ => String::new(),
            };
            errno.with_remedy("ibv_query_port", format_args!("{}, port {port}", self.device().name()), remedy)
        })?;
        // SAFETY: all zeroes are a valid structure, and libibverbs wrote valid fields over them.
        Ok(PortAttributes { attributes: unsafe { attributes.assume_init() } })
    }

    /// `ibv_query_port_speed`: how fast a port is in fact, in Mbit/s: several links taken together, or part of one. Ports count
    /// from 1.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: the device has no such port.
    /// * [`Error::Unsupported`]: the provider or the kernel does not tell, or the crate was built with rdma-core before release 62.
    ///   [`link_rate_mbps`](PortAttributes::link_rate_mbps) is told by all.
    ///
    /// # References
    ///
    /// [ibv_query_port_speed(3)](https://man7.org/linux/man-pages/man3/ibv_query_port_speed.3.html)
    #[doc(alias = "ibv_query_port_speed")]
    pub fn port_speed_mbps(&self, port: u8) -> Result<u64> {
        // The verb has units of 100 Mbit/s.
        self.port_speed(port)
            .map(|speed| speed.saturating_mul(100))
            .map_err(|errno| errno.of("ibv_query_port_speed", format_args!("{}, port {port}", self.device().name())))
    }

    #[cfg(rdma_core_62)]
    fn port_speed(&self, port: u8) -> Result<u64, Errno> {
        let mut speed = 0;
        // SAFETY: the context is open, and `speed` outlives the call.
        zero_or_errno(unsafe { ffi::ibv_query_port_speed(self.as_raw(), port.into(), &mut speed) })?;
        Ok(speed)
    }

    #[cfg(not(rdma_core_62))]
    fn port_speed(&self, _port: u8) -> Result<u64, Errno> {
        Err(Errno(libc::EOPNOTSUPP))
    }

    /// How many interrupt vectors there are for completions, for
    /// [`CompletionQueueBuilder::comp_vector`](crate::CompletionQueueBuilder::comp_vector).
    #[doc(alias = "num_comp_vectors")]
    pub fn completion_vectors(&self) -> u32 {
        // SAFETY: the context is open, and the field does not change.
        u32::try_from(unsafe { self.inner.context.as_ref().num_comp_vectors }).unwrap_or(0)
    }

    pub(crate) fn objects(&self) -> &Objects {
        &self.inner.opened.objects
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.inner.opened.watch
    }

    /// What watches another descriptor of the device's.
    pub(crate) fn new_watch(&self) -> Watch {
        self.watch().another()
    }

    /// The context's own descriptor, from which libibverbs reads asynchronous events.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.inner.context.as_ref().async_fd) }
    }

    /// The context in libibverbs' terms; valid as long as `self`, and not to be closed.
    pub fn as_raw(&self) -> *mut ffi::ibv_context {
        self.inner.context.as_ptr()
    }

    /// Whether both are handles to the same open device. (A library may have lent it twice.)
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.inner.context == other.inner.context
    }

    /// The error of an object that was made from another context than `self`.
    pub(crate) fn must_be(&self, other: &Self, verb: &'static str, argument: &'static str) -> Result<()> {
        if self.is_same(other) {
            return Ok(());
        }
        let value = format!("of another open of {}", other.device().name());
        Err(Error::invalid(verb, argument, value, "all objects must come from one `Context`"))
    }
}

/// The error of an object of C's that was made of other objects than it is said to be.
pub(crate) fn must_be_made_of(verb: &'static str, parts: &[(&'static str, bool)]) -> Result<()> {
    match parts.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((argument, _)) => {
            Err(Error::invalid(verb, argument, "another one", "an object keeps what it was made of"))
        }
    }
}

impl AsFd for Context {
    /// A file descriptor that is readable as long as there is an asynchronous event. It is for `select`, `poll`, `epoll` (by level or by
    /// edge) and what is built on them; then [`try_async_event`](Context::try_async_event) takes the event.
    ///
    /// It is an epoll descriptor that watches the context's own: nothing can be read from it, and its flags are its own. It is made by the
    /// first call, and closed with the context. If it cannot be made (`EMFILE`), another descriptor is returned that is always readable,
    /// and [`try_async_event`](Context::try_async_event) tells the error.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch().of(self.async_fd())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device().name()).finish()
    }
}
