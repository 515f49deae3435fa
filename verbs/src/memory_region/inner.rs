//! The owner of a registration.
//!
//! # Safety
//!
//! `Inner` owns memory that was taken apart, and its registration. The memory is put together again only after `ibv_dereg_mr`
//! succeeded (or the like of it, which the memory knows), or after `ibv_rereg_mr` has put other memory in its place; both wait until the
//! device has let go of it. If that fails, the memory is left where it is, for ever.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::access_flags::AccessFlags;
use crate::ffi;
use crate::leaked;
use crate::memory_region::MemoryRegion;
use crate::memory_region::memory::Memory;
use crate::protection_domain::ProtectionDomain;
use crate::returns::{Errno, zero_or_errno};

pub(crate) struct Inner<M: Memory> {
    pub(super) mr: NonNull<ffi::ibv_mr>,
    /// `None` once the memory was put together again, or given up.
    parts: Option<M::Parts>,
    /// Where the processor finds the first byte; dangling if it does not.
    pub(super) data: NonNull<u8>,
    /// Where the device finds the first byte.
    pub(super) address: u64,
    pub(super) length: usize,
    pub(super) access: AccessFlags,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    // Freed after the region is deregistered.
    pub(super) pd: ProtectionDomain,
}

// SAFETY: the memory's owner is moved along with it, and `mr` is only passed to libibverbs and not written to.
unsafe impl<M: Memory + Send> Send for Inner<M> {}
// SAFETY: through a shared reference memory is only read, or is atomic.
unsafe impl<M: Memory + Sync> Sync for Inner<M> {}

/// What a region is made of.
pub(super) struct Place {
    pub(super) data: NonNull<u8>,
    pub(super) address: u64,
    pub(super) length: usize,
}

impl Place {
    /// Memory of the program's, which the device finds at `iova`, or where it is.
    pub(super) fn of<E>(data: NonNull<E>, elements: usize, iova: Option<u64>) -> Self {
        let address = iova.unwrap_or(data.as_ptr() as u64);
        Self { data: data.cast(), address, length: elements * size_of::<E>() }
    }
}

impl<M: Memory> Inner<M> {
    /// # Safety
    ///
    /// `mr` was registered just now in the domain, and nobody else deregisters it. It is of the memory of these parts, which is at that
    /// place.
    pub(super) unsafe fn new(
        mr: NonNull<ffi::ibv_mr>,
        parts: M::Parts,
        place: Place,
        access: AccessFlags,
        pd: &ProtectionDomain,
    ) -> Self {
        // SAFETY: the region is registered.
        let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
        let Place { data, address, length } = place;
        Self { mr, parts: Some(parts), data, address, length, access, lkey, rkey, pd: pd.clone() }
    }

    /// Deregisters and gives the memory back. On failure nothing has changed.
    pub(super) fn deregister(&mut self) -> Result<Option<M>, Errno> {
        let Some(parts) = self.parts.take() else { return Ok(None) };
        // SAFETY: the region is registered: its parts were there. Nobody else uses it: we are borrowed mutably.
        match zero_or_errno(unsafe { M::end(self.mr.as_ptr()) }) {
            // SAFETY: these are the memory's parts, taken once, and it is no longer registered.
            Ok(()) => Ok(Some(unsafe { M::from_parts(parts) })),
            Err(errno) => {
                self.parts = Some(parts);
                Err(errno)
            }
        }
    }

    /// The number of the region.
    pub(super) fn handle(&self) -> u32 {
        // SAFETY: the region is registered, and its number changes only by re-registration, for which we would be borrowed mutably.
        unsafe { self.mr.as_ref().handle }
    }

    /// Leaves the memory where it is, for ever: the device may still use it.
    pub(super) fn leak(&mut self) {
        if let Some(parts) = self.parts.take() {
            std::mem::forget(parts);
            if M::IS_BUFFER {
                leaked::add(self.length);
            }
        }
    }

    /// Takes the keys anew, which re-registration changes.
    pub(super) fn take_keys(&mut self) {
        // SAFETY: the region is registered.
        (self.lkey, self.rkey) = unsafe { (self.mr.as_ref().lkey, self.mr.as_ref().rkey) };
    }

    /// The registration is now of other memory; gives back that which it was of.
    ///
    /// # Safety
    ///
    /// `mr` is registered for the memory of `parts`, at that place, and no longer for what it was registered for before.
    pub(super) unsafe fn replace(&mut self, parts: M::Parts, place: Place) -> Option<M> {
        Place { data: self.data, address: self.address, length: self.length } = place;
        // SAFETY: the parts are taken once, and their memory is no longer registered.
        self.parts.replace(parts).map(|parts| unsafe { M::from_parts(parts) })
    }
}

impl<M: Memory> Drop for Inner<M> {
    fn drop(&mut self) {
        if self.deregister().is_err() {
            self.leak();
        }
    }
}

/// A registration of whatever memory: whoever holds it keeps the region registered.
pub(crate) trait Registered: Send + Sync {
    fn as_raw(&self) -> *mut ffi::ibv_mr;
    fn protection_domain(&self) -> &ProtectionDomain;
}

impl<M: Memory + Send + Sync> Registered for Inner<M> {
    fn as_raw(&self) -> *mut ffi::ibv_mr {
        self.mr.as_ptr()
    }

    fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }
}

impl<M: Memory<Parts = M>> MemoryRegion<M> {
    /// A region of memory that the processor does not reach, and that the device finds at `address`.
    ///
    /// # Safety
    ///
    /// As for [`Inner::new`].
    pub(crate) unsafe fn out_of_reach(
        mr: NonNull<ffi::ibv_mr>,
        memory: M,
        address: u64,
        length: usize,
        access: AccessFlags,
        pd: &ProtectionDomain,
    ) -> Self {
        let place = Place { data: NonNull::dangling(), address, length };
        // SAFETY: as the caller says.
        unsafe { Inner::new(mr, memory, place, access, pd) }.into()
    }
}
