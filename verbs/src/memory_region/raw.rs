//! [`MemoryRegion`] from what C registered.
//!
//! # Safety
//!
//! The caller says that the region is registered, and of the buffer's memory; its address and length are looked at.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::MemoryRegion;
use super::inner::{Inner, Place};
use super::register::{RegisterError, check_iova};
use crate::access_flags::AccessFlags;
use crate::buffer::Buffer;
use crate::context::must_be_made_of;
use crate::error::Result;
use crate::ffi;
use crate::protection_domain::ProtectionDomain;

impl<B: Buffer> MemoryRegion<B> {
    /// Takes over a region that was registered by other means, such as a provider's own call, with its memory: a
    /// [`RawBuffer`](crate::RawBuffer), for example. It is deregistered when the region is dropped, and all that holds it.
    ///
    /// `iova` is where the addresses begin for the device and for peers; `None`: where the memory is.
    ///
    /// # Safety
    ///
    /// * `mr` is registered, of the memory of `buffer` and with these rights, and nobody else deregisters it.
    /// * Memory windows that were bound to it by other means are unbound before the region goes.
    ///
    /// # Errors
    ///
    /// The buffer comes back with the error, and the region still belongs to the caller:
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the region was registered in another domain, or is of another address or
    ///   length than the buffer; the rights do not go together, or not with the buffer.
    pub unsafe fn from_raw(
        mr: NonNull<ffi::ibv_mr>,
        buffer: B,
        iova: Option<u64>,
        access: AccessFlags,
        pd: &ProtectionDomain,
    ) -> Result<Self, RegisterError<B>> {
        const VERB: &str = "ibv_reg_mr";
        let (data, elements, rest) = buffer.into_raw_parts();
        let place = Place::of(data, elements, iova);
        // SAFETY: the region is registered.
        let raw = unsafe { mr.as_ref() };
        let parts = [
            ("pd", raw.pd == pd.as_raw()),
            ("addr", raw.addr.cast() == place.data.as_ptr()),
            ("length", raw.length == place.length && place.length > 0),
        ];
        let checked = must_be_made_of(VERB, &parts)
            .and_then(|()| check_iova(VERB, place.address, place.length, access))
            .and_then(|()| access.check_for_memory(B::WRITABLE));
        match checked {
            // SAFETY: the region is of the buffer's memory, as the caller says, and nobody else deregisters it.
            Ok(()) => Ok(unsafe { Inner::new(mr, (data, elements, rest), place, access, pd) }.into()),
            Err(error) => {
                // SAFETY: these are the buffer's parts. What the device may do with the memory is the caller's affair, as it was before.
                let buffer = unsafe { B::from_raw_parts(data, elements, rest) };
                Err(RegisterError { buffer, error })
            }
        }
    }
}
