//! [`MemoryWindow`]: a key to part of a memory region, which can be given and taken back without registering anything.
//!
//! # Safety
//!
//! * A window is made in `pd`, of type `K`, if its provider can bind and free it. It is freed at the latest when the `MemoryWindow` is
//!   dropped.
//! * The regions that it may be bound to are held until then, or until a completion tells that it is not bound.
#![allow(unsafe_code)]

mod bind;
mod bind_extended;
mod handle;
mod proof;
mod request;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::context::must_be_made_of;
use crate::error::{Error, Result};
use crate::ffi;
use crate::memory_region::Registered;
use crate::protection_domain::ProtectionDomain;
use crate::returns::{Errno, null_and_errno};

use handle::{Belongs, Handle};
use sealed::Sealed as _;

pub(crate) use handle::BoundWindows;
pub(crate) use proof::Told;

pub use proof::Completion;
pub use request::{BindRequest, UnbindRequest};

const VERB: &str = "ibv_alloc_mw";

mod sealed {
    pub trait Sealed {
        #[doc(hidden)]
        const TYPE: super::ffi::ibv_mw_type;
    }
}

/// The type of a memory window: [`WindowType1`] or [`WindowType2`].
pub trait WindowType: sealed::Sealed + 'static {}

/// A window that is bound by a verb of its own, as often as one likes: each binding replaces the one before. Any queue pair of its domain
/// serves it. The device chooses its keys.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 10.6.7.2.2.
#[doc(alias = "IBV_MW_TYPE_1")]
#[derive(Clone, Copy, Debug)]
pub enum WindowType1 {}

impl sealed::Sealed for WindowType1 {
    const TYPE: ffi::ibv_mw_type = ffi::ibv_mw_type::IBV_MW_TYPE_1;
}
impl WindowType for WindowType1 {}

/// A window that is bound by a request of the send queue, and has to be invalidated, here or by the peer, before it is bound again. It
/// serves the queue pair that it was bound by only, until it is [released](MemoryWindow::release). The program chooses the last 8 bits of its keys.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 10.6.7.2.3.
#[doc(alias = "IBV_MW_TYPE_2")]
#[derive(Clone, Copy, Debug)]
pub enum WindowType2 {}

impl sealed::Sealed for WindowType2 {
    const TYPE: ffi::ibv_mw_type = ffi::ibv_mw_type::IBV_MW_TYPE_2;
}
impl WindowType for WindowType2 {}

/// `struct ibv_mw`: a memory window, through which a peer reaches part of a [`MemoryRegion`](crate::MemoryRegion) that was registered with
/// [`MW_BIND`](crate::AccessFlags::MW_BIND), with rights of the window's own. Binding and unbinding go through a queue pair, in the order of
/// its requests, and cost far less than registering.
///
/// (rxe of kernels 6.1 and 6.12 looks at a window's rights and at its region's bounds, but not at the window's own.)
///
/// A window holds the regions that it was bound to, until it is dropped or [`release`](Self::release)d; handles can be dropped in any order.
/// A window of type 2 belongs to the queue pair that it was bound by last until it is released, for which it takes a completion that proves
/// that it is not bound. Only then can another queue pair bind it; and if its queue pair is dropped before, it is freed: no device lets a
/// queue pair go that has windows.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{AccessFlags, BindRequest, LocalSlice, MemoryRegion, ProtectionDomain, QueuePair, Rc, UnbindRequest, WindowType2};
/// # fn tell_peer(window: verbs::RemoteSlice) {}
/// # fn example(pd: &ProtectionDomain, qp: &QueuePair<Rc>, wait_for: impl Fn(u64) -> verbs::WorkCompletion) -> verbs::Result<()> {
/// let region = pd.register(vec![0; 1 << 20], AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)?;
/// let mut window = pd.create_memory_window::<WindowType2>()?;
/// let bind = BindRequest::new(1, &region, 4096..8192, AccessFlags::REMOTE_WRITE)?.signaled();
/// let remote = qp.post_bind(&mut window, &bind)?;
/// wait_for(1).success()?;
/// tell_peer(remote);
/// // Once the peer is done:
/// qp.post_unbind(&mut window, &UnbindRequest::new(2).signaled())?;
/// // Any queue pair can bind it now, and the region can be deregistered.
/// window.release(&wait_for(2))?;
/// # Ok(()) }
/// ```
///
/// A queue pair of UD has no RDMA, and so no windows:
///
/// ```compile_fail,E0599
/// # use verbs::{BindRequest, MemoryWindow, QueuePair, Ud, WindowType2};
/// # fn example(qp: &QueuePair<Ud>, window: &mut MemoryWindow<WindowType2>, bind: &BindRequest) -> verbs::Result<()> {
/// qp.post_bind(window, bind)?;
/// # Ok(()) }
/// ```
///
/// # References
///
/// [ibv_alloc_mw(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html); InfiniBand Architecture Specification, volume 1, chapter
/// 10.6.7.
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow<K: WindowType> {
    handle: Arc<Handle>,
    // Let go of after the window is freed, and with it unbound.
    regions: Vec<Arc<dyn Registered>>,
    // Freed after the window.
    pd: ProtectionDomain,
    kind: PhantomData<K>,
}

impl<K: WindowType> Drop for MemoryWindow<K> {
    fn drop(&mut self) {
        let _ = self.handle.lock().free();
    }
}

impl ProtectionDomain {
    /// `ibv_alloc_mw`: makes a memory window, which is bound to nothing.
    ///
    /// # Errors
    ///
    /// * [`Error::Unsupported`]: the device has no windows, or not of this type.
    /// * `ENOMEM`: the device has no more of them.
    ///
    /// # References
    ///
    /// [ibv_alloc_mw(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
    #[doc(alias = "ibv_alloc_mw")]
    pub fn create_memory_window<K: WindowType>(&self) -> Result<MemoryWindow<K>> {
        self.must_have_windows::<K>()?;
        // SAFETY: the domain is alive.
        let mw = null_and_errno(unsafe { ffi::ibv_alloc_mw(self.as_raw(), K::TYPE) })
            .map_err(|errno| errno.of(VERB, self.window_arguments::<K>()))?;
        // SAFETY: the window was made just now, and `MemoryWindow` frees it before it lets go of its domain.
        let handle = unsafe { Handle::new(mw, Belongs::ToNone) };
        Ok(MemoryWindow { handle, regions: Vec::new(), pd: self.clone(), kind: PhantomData })
    }

    /// Whether the provider can bind and free windows.
    fn must_have_windows<K: WindowType>(&self) -> Result<()> {
        // SAFETY: the context is open.
        let operations = unsafe { &(*self.context().as_raw()).ops };
        if operations.bind_mw.is_none() || operations.dealloc_mw.is_none() {
            return Err(Errno(libc::EOPNOTSUPP).of(VERB, self.window_arguments::<K>()));
        }
        Ok(())
    }

    fn window_arguments<K: WindowType>(&self) -> String {
        format!("type {}, {}", K::TYPE.0, self.context().device().name())
    }
}

impl<K: WindowType> MemoryWindow<K> {
    /// Takes over a window that was made by other means. Dropping it frees it.
    ///
    /// # Safety
    ///
    /// * `mw` is alive, and nobody else frees it.
    /// * If it is bound, its region is registered until it is bound to another one, unbound or freed. A window of type 2 that is bound is
    ///   freed before the queue pair that it was bound by is destroyed.
    ///
    /// # Errors
    ///
    /// The window then still belongs to the caller.
    ///
    /// * [`Error::InvalidArgument`]: it is of another type, or was made in another domain.
    /// * [`Error::Unsupported`]: the provider lacks the verbs to bind and to free it.
    pub unsafe fn from_raw(mw: NonNull<ffi::ibv_mw>, pd: &ProtectionDomain) -> Result<Self> {
        // SAFETY: the window is alive.
        let raw = unsafe { mw.as_ref() };
        must_be_made_of(VERB, &[("pd", raw.pd == pd.as_raw()), ("type", raw.type_ == K::TYPE)])?;
        pd.must_have_windows::<K>()?;
        // SAFETY: as the caller says; `MemoryWindow` frees the window before it lets go of its domain.
        let handle = unsafe { Handle::new(mw, Belongs::Unknown) };
        Ok(Self { handle, regions: Vec::new(), pd: pd.clone(), kind: PhantomData })
    }

    /// The key of the latest binding that was posted.
    pub fn rkey(&self) -> u32 {
        self.handle.lock().rkey()
    }

    /// Says that a binding failed, as its completion tells, and that the key is still `rkey`, which was the window's before. Otherwise the
    /// next binding may fail too.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the window is of type 2, and the key is not one of its own, which differ in the last 8 bits only. The
    /// key is what it was.
    pub fn restore_rkey(&mut self, rkey: u32) -> Result<()> {
        let mut state = self.handle.lock();
        if K::TYPE != WindowType1::TYPE && (rkey ^ state.rkey()) >> 8 != 0 {
            let rule = format!("the keys of this window begin as {:#x} does", state.rkey());
            return Err(Error::invalid("ibv_bind_mw", "rkey", format!("{rkey:#x}"), rule));
        }
        state.restore_rkey(rkey);
        Ok(())
    }

    /// Holds a region that the window is about to be bound to: the last one.
    fn hold(&mut self, region: &Arc<dyn Registered>) {
        self.regions.retain(|held| !Arc::ptr_eq(held, region));
        self.regions.push(region.clone());
    }

    /// Whether the window is there no more: it was bound by a queue pair that is gone. It cannot be bound again.
    pub fn is_freed(&self) -> bool {
        self.handle.lock().mw().is_none()
    }

    /// The domain in which the window was made.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// `ibv_dealloc_mw`: unbinds the window and frees it. Dropping it does the same.
    ///
    /// # Errors
    ///
    /// The window comes back with the provider's error.
    ///
    /// # References
    ///
    /// [ibv_alloc_mw(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_mw.3.html)
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn deallocate(self) -> Result<(), (Self, Error)> {
        let freed = self.handle.lock().free();
        freed.map_err(|errno| {
            let error = errno.of("ibv_dealloc_mw", format_args!("rkey {:#x}", self.rkey()));
            (self, error)
        })
    }

    /// The window in libibverbs' terms; valid as long as `self` and the queue pair that it was bound by, and not to be freed. Null if it
    /// [is freed](Self::is_freed).
    pub fn as_raw(&self) -> *mut ffi::ibv_mw {
        self.handle.lock().mw().map_or(ptr::null_mut(), |mw| mw.as_ptr())
    }
}

impl<K: WindowType> fmt::Debug for MemoryWindow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryWindow(type {}, rkey {:#x})", K::TYPE.0, self.rkey())
    }
}
