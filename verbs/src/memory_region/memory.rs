//! [`Memory`]: what a region is of.
//!
//! # Safety
//!
//! Parts are put together once, when their memory is no longer registered.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::buffer::Buffer;

/// What a [`MemoryRegion`](crate::MemoryRegion) is of: a [`Buffer`], or memory that the processor does not reach through the region: a
/// [`DmaBuf`](crate::DmaBuf), a [`DeviceMemoryRange`](crate::DeviceMemoryRange), [`NullMemory`](crate::NullMemory), an
/// [`AddressSpace`](crate::AddressSpace), the [`SameMemory`](crate::SameMemory) as another region, or [`ImportedMemory`](crate::ImportedMemory).
pub trait Memory: sealed::Memory + 'static {}

impl<M: sealed::Memory + 'static> Memory for M {}

pub(crate) mod sealed {
    use std::ffi::c_int;

    use crate::ffi;

    /// # Safety
    ///
    /// Memory that was taken apart stays valid until `from_parts` is called, or for ever.
    pub unsafe trait Memory: Sized {
        /// What the memory is put together from.
        type Parts;

        /// Whether it is a buffer of the program's.
        #[doc(hidden)]
        const IS_BUFFER: bool;

        /// # Safety
        ///
        /// The parts are those of a region that was deregistered, and are used once.
        #[doc(hidden)]
        unsafe fn from_parts(parts: Self::Parts) -> Self;

        /// Ends a registration; returns 0 or an error number, and then nothing has changed.
        ///
        /// # Safety
        ///
        /// The region is of such memory, is registered, and nobody else uses it.
        #[doc(hidden)]
        unsafe fn end(mr: *mut ffi::ibv_mr) -> c_int {
            // SAFETY: as the caller says.
            unsafe { ffi::ibv_dereg_mr(mr) }
        }
    }
}

// SAFETY: a buffer promises it.
unsafe impl<B: Buffer> sealed::Memory for B {
    type Parts = (NonNull<B::Element>, usize, B::Rest);
    const IS_BUFFER: bool = true;

    unsafe fn from_parts((data, elements, rest): Self::Parts) -> Self {
        // SAFETY: the caller passes the parts of the buffer, once, and its memory is no longer registered.
        unsafe { B::from_raw_parts(data, elements, rest) }
    }
}

/// Memory that the processor does not reach through its region: what keeps it is all that there is of it.
macro_rules! out_of_reach {
    ($name:ty, is_buffer: $is_buffer:literal) => {
        // SAFETY: the memory is kept by the value, or by the device.
        unsafe impl crate::memory_region::memory::sealed::Memory for $name {
            type Parts = Self;
            const IS_BUFFER: bool = $is_buffer;

            unsafe fn from_parts(parts: Self) -> Self {
                parts
            }
        }
    };
}

pub(crate) use out_of_reach;
