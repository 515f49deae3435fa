//! [`CompletionFields`]: what a completion of an extended queue tells.
//!
//! # Safety
//!
//! A field is read from a queue that was made with its flag, while an entry is open whose request has succeeded.
#![allow(unsafe_code)]

use crate::ffi;
use crate::ffi::ibv_create_cq_wc_flags as Flags;
use crate::memory_window::Told;
use crate::work_completion::WorkCompletionOpcode;

/// A field of a completion: one of the types of [`completion_field`](crate::completion_field).
pub trait CompletionField: sealed::Field {}

impl<F: sealed::Field> CompletionField for F {}

/// The fields that the completions of an [`ExtendedCompletionQueue`](crate::ExtendedCompletionQueue) have: a tuple of up to eight types
/// of [`completion_field`](crate::completion_field). Their values come as a tuple, too.
pub trait CompletionFields: sealed::Fields<Values = Self::Tuple> {
    /// The values of the fields.
    type Tuple: Copy;
}

impl<F: sealed::Fields> CompletionFields for F {
    type Tuple = F::Values;
}

pub(crate) mod sealed {
    use crate::ffi;
    use crate::memory_window::Told;

    /// # Safety
    ///
    /// `is_readable` tells whether the provider has the reader that `read` calls.
    pub unsafe trait Field {
        /// What a field's value is.
        type Value: Copy;
        #[doc(hidden)]
        const FLAGS: u64;
        #[doc(hidden)]
        fn is_readable(cq: &ffi::ibv_cq_ex) -> bool;
        /// # Safety
        ///
        /// As the file says.
        #[doc(hidden)]
        unsafe fn read(cq: *mut ffi::ibv_cq_ex) -> Self::Value;
        /// Adds what the field tells of memory windows.
        #[doc(hidden)]
        fn tell(_value: Self::Value, _told: &mut Told) {}
    }

    /// # Safety
    ///
    /// As [`Field`].
    pub unsafe trait Fields {
        /// What the fields' values are.
        type Values: Copy;
        #[doc(hidden)]
        const FLAGS: u64;
        #[doc(hidden)]
        fn are_readable(cq: &ffi::ibv_cq_ex) -> bool;
        /// # Safety
        ///
        /// As the file says.
        #[doc(hidden)]
        unsafe fn read(cq: *mut ffi::ibv_cq_ex) -> Self::Values;
        #[doc(hidden)]
        fn tell(values: Self::Values, told: &mut Told);
    }
}

macro_rules! tuples {
    ($($($field:ident)*;)*) => {
        $(
            // SAFETY: each field's reader is there if all are.
            unsafe impl<$($field: sealed::Field),*> sealed::Fields for ($($field,)*) {
                type Values = ($($field::Value,)*);
                const FLAGS: u64 = 0 $(| $field::FLAGS)*;

                fn are_readable(_cq: &ffi::ibv_cq_ex) -> bool {
                    true $(&& $field::is_readable(_cq))*
                }

                #[inline]
                #[allow(clippy::unused_unit, unused_unsafe, reason = "the tuple of no field")]
                unsafe fn read(_cq: *mut ffi::ibv_cq_ex) -> Self::Values {
                    // SAFETY: as the caller says.
                    unsafe { ($($field::read(_cq),)*) }
                }

                #[allow(non_snake_case, reason = "the values are named as their fields")]
                fn tell(($($field,)*): Self::Values, _told: &mut Told) {
                    $(<$field as sealed::Field>::tell($field, _told);)*
                }
            }
        )*
    };
}

tuples! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

macro_rules! fields {
    ($($(#[$meta:meta])* $name:ident: $value:ty = $flags:expr, $read:ident, |$raw:ident, $cq:ident| $convert:expr $(=> $tells:ident)?;)*) => {
        /// The fields that a completion of an [`ExtendedCompletionQueue`](crate::ExtendedCompletionQueue) can have.
        pub mod completion_field {
            use super::*;

            pub use crate::datagram::ReceivedDatagram;

            $(
                $(#[$meta])*
                #[derive(Clone, Copy, Debug)]
                pub enum $name {}

                // SAFETY: `read` calls the reader that is looked for.
                unsafe impl sealed::Field for $name {
                    type Value = $value;
                    const FLAGS: u64 = $flags;

                    fn is_readable(cq: &ffi::ibv_cq_ex) -> bool {
                        cq.$read.is_some()
                    }

                    #[inline]
                    unsafe fn read($cq: *mut ffi::ibv_cq_ex) -> $value {
                        // SAFETY: as the caller says; the reader was there when the queue was made.
                        unsafe {
                            let $raw = match (*$cq).$read {
                                Some(read) => read($cq),
                                None => std::hint::unreachable_unchecked(),
                            };
                            $convert
                        }
                    }

                    $(fn tell(value: $value, told: &mut Told) {
                        told.$tells = Some(value);
                    })?
                }
            )*
        }
    };
}

const fn flag(flag: Flags) -> u64 {
    flag.0 as u64
}

fields! {
    /// `ibv_wc_read_opcode`: what the request did.
    #[doc(alias = "ibv_wc_read_opcode")]
    Opcode: WorkCompletionOpcode = 0, read_opcode, |raw, cq| WorkCompletionOpcode::from_raw(raw.0) => opcode;

    /// `ibv_wc_read_byte_len`: how many bytes arrived. Of sends that fetch nothing it is undefined.
    #[doc(alias = "ibv_wc_read_byte_len")]
    ByteLen: u32 = flag(Flags::IBV_WC_EX_WITH_BYTE_LEN), read_byte_len, |raw, cq| raw;

    /// `ibv_wc_read_imm_data`: the immediate data that arrived with the message, in host byte order; `None` if it had none.
    #[doc(alias = "ibv_wc_read_imm_data")]
    ImmData: Option<u32> = flag(Flags::IBV_WC_EX_WITH_IMM), read_imm_data, |raw, cq| {
        (wc_flags(cq) & ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0).then(|| u32::from_be(raw))
    };

    /// `ibv_wc_read_invalidated_rkey`: the key that the message invalidated (SEND with invalidate); `None` if it invalidated none. (`None`
    /// on rxe, whose kernel sets a flag for it that means something else here.)
    #[doc(alias = "ibv_wc_read_invalidated_rkey")]
    InvalidatedRkey: Option<u32> = flag(Flags::IBV_WC_EX_WITH_IMM), read_imm_data, |raw, cq| {
        (wc_flags(cq) & ffi::ibv_wc_flags::IBV_WC_WITH_INV.0 != 0).then_some(raw)
    } => invalidated_rkey;

    /// `ibv_wc_read_wc_flags`: whether the 40 bytes before the payload of a datagram hold a [header](crate::Grh), of a UD receive.
    #[doc(alias = "IBV_WC_GRH")]
    HasGrh: bool = 0, read_wc_flags, |raw, cq| raw & ffi::ibv_wc_flags::IBV_WC_GRH.0 != 0;

    /// `ibv_wc_read_qp_num`: the local queue pair's number, 24 bits.
    #[doc(alias = "ibv_wc_read_qp_num")]
    QueuePairNumber: u32 = flag(Flags::IBV_WC_EX_WITH_QP_NUM), read_qp_num, |raw, cq| raw => qp_num;

    /// `ibv_wc_read_src_qp`: the sender's queue pair number, of a UD receive.
    #[doc(alias = "ibv_wc_read_src_qp")]
    SourceQueuePair: u32 = flag(Flags::IBV_WC_EX_WITH_SRC_QP), read_src_qp, |raw, cq| raw;

    /// `ibv_wc_read_slid`: the sender's LID, of a UD receive on InfiniBand.
    #[doc(alias = "ibv_wc_read_slid")]
    SourceLid: u32 = flag(Flags::IBV_WC_EX_WITH_SLID), read_slid, |raw, cq| raw;

    /// `ibv_wc_read_sl`: the service level, of a UD receive.
    #[doc(alias = "ibv_wc_read_sl")]
    ServiceLevel: u8 = flag(Flags::IBV_WC_EX_WITH_SL), read_sl, |raw, cq| raw;

    /// `ibv_wc_read_dlid_path_bits`: the low bits of the destination LID, of a UD receive on InfiniBand.
    #[doc(alias = "ibv_wc_read_dlid_path_bits")]
    DestinationPathBits: u8 =
        flag(Flags::IBV_WC_EX_WITH_DLID_PATH_BITS), read_dlid_path_bits, |raw, cq| raw;

    /// `ibv_wc_read_completion_ts`: when the request completed, by the device's own clock, in its cycles.
    #[doc(alias = "ibv_wc_read_completion_ts")]
    Timestamp: u64 =
        flag(Flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP), read_completion_ts, |raw, cq| raw;

    /// `ibv_wc_read_completion_wallclock_ns`: when the request completed, in nanoseconds of the wall clock.
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    WallClock: u64 =
        flag(Flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK), read_completion_wallclock_ns, |raw, cq| raw;

    /// `ibv_wc_read_cvlan`: the customer VLAN tag, of a raw packet.
    #[doc(alias = "ibv_wc_read_cvlan")]
    CustomerVlan: u16 = flag(Flags::IBV_WC_EX_WITH_CVLAN), read_cvlan, |raw, cq| raw;

    /// `ibv_wc_read_flow_tag`: the tag of the flow rule that steered the packet here.
    #[doc(alias = "ibv_wc_read_flow_tag")]
    FlowTag: u32 = flag(Flags::IBV_WC_EX_WITH_FLOW_TAG), read_flow_tag, |raw, cq| raw;
}

/// The flags of the open entry.
///
/// # Safety
///
/// As the file says; a queue is made only if this reader is there.
#[inline]
unsafe fn wc_flags(cq: *mut ffi::ibv_cq_ex) -> u32 {
    // SAFETY: as the caller says.
    unsafe {
        match (*cq).read_wc_flags {
            Some(read) => read(cq),
            None => std::hint::unreachable_unchecked(),
        }
    }
}
