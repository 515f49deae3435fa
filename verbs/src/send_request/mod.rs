//! [`SendRequest`]: what to send.
//!
//! # Safety
//!
//! A `SendRequest<'a, T>` names an operation that transport `T` has. The fields of `ibv_send_wr` that libibverbs reads for
//! that operation are initialised; the others are not, and are never read. Its list of scatter/gather entries lives for
//! `'a`, and what each entry names too: a region or, if the request has the inline flag, memory of the program. Only
//! operations that gather have that flag. A request of UD names an address handle, which lives for `'a`.
#![allow(unsafe_code)]

mod datagram;
mod operations;
mod reliable;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use crate::chain::sealed::Request;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_wr_opcode as Opcode;
use crate::inline_slice::InlineSlice;
use crate::local_slice::LocalSlice;
use crate::remote_slice::RemoteSlice;
use crate::transport::{Rc, Transport};
use crate::work_request::{is_atomic, names_a_word};

/// `struct ibv_send_wr`: a request for the send queue of a queue pair of transport `T`.
///
/// `wr_id` is the program's own number; the request's completion carries it. A message is gathered from its local
/// [`LocalSlice`]s in their order; an empty list is an empty message. A request that is not [`signaled`](Self::signaled)
/// completes visibly only if it fails, unless the queue pair signals all.
///
/// # References
///
/// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html); InfiniBand Architecture Specification,
/// volume 1, chapter 11.4.1.1.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{QueuePair, Rc, LocalSlice, RemoteSlice, SendRequest};
/// # fn example(qp: &QueuePair<Rc>, message: LocalSlice<'_>, remote: RemoteSlice) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::rdma_write(1, &[message], remote))?;
/// qp.post_send(&SendRequest::send(2, &[message]).signaled())?;
/// # Ok(()) }
/// ```
///
/// A region cannot go away while a request that names it waits to be posted:
///
/// ```compile_fail,E0505
/// # use verbs::{Buffer, MemoryRegion, QueuePair, Rc, SendRequest};
/// # fn example(qp: &QueuePair<Rc>, region: MemoryRegion<Vec<u8>>) -> verbs::Result<()> {
/// let slices = [region.slice(..)?];
/// let request = SendRequest::send(1, &slices);
/// drop(region);
/// qp.post_send(&request)?;
/// # Ok(()) }
/// ```
///
/// A post writes to the request, so two threads cannot post the same one; each makes its own:
///
/// ```compile_fail,E0277
/// # use verbs::{QueuePair, Rc, SendRequest};
/// # fn example(qp: &QueuePair<Rc>, request: &SendRequest<'_>) {
/// std::thread::scope(|scope| {
///     scope.spawn(|| qp.post_send(request));
/// });
/// # }
/// ```
#[doc(alias = "ibv_send_wr")]
#[must_use = "a request does nothing before it is posted"]
#[repr(transparent)]
pub struct SendRequest<'a, T: Transport = Rc> {
    // Libibverbs takes requests by a pointer to mutable memory, hence the cell.
    wr: UnsafeCell<MaybeUninit<ffi::ibv_send_wr>>,
    slices: PhantomData<(&'a [LocalSlice<'a>], T)>,
}

// SAFETY: what the pointers in the request lead to is only read, and may be read from any thread.
unsafe impl<T: Transport> Send for SendRequest<'_, T> {}

impl<'a, T: Transport> SendRequest<'a, T> {
    #[inline]
    fn new(wr_id: u64, slices: &'a [LocalSlice<'a>], opcode: Opcode) -> Self {
        // SAFETY: a `LocalSlice` is an `ibv_sge` and nothing more, and its region lives for `'a`.
        unsafe { Self::with_list(wr_id, slices.as_ptr().cast(), slices.len(), opcode) }
    }

    #[inline]
    fn new_inline(wr_id: u64, slices: &'a [InlineSlice<'a>], opcode: Opcode) -> Self {
        // SAFETY: an `InlineSlice` is an `ibv_sge` and nothing more, and the flag says that it names memory of the program.
        let request = unsafe { Self::with_list(wr_id, slices.as_ptr().cast(), slices.len(), opcode) };
        request.with_flag(ffi::ibv_send_flags::IBV_SEND_INLINE)
    }

    /// The fields that each operation has.
    ///
    /// # Safety
    ///
    /// The list has `length` entries, and it and what its entries name live for `'a`.
    #[inline]
    unsafe fn with_list(wr_id: u64, list: *const ffi::ibv_sge, length: usize, opcode: Opcode) -> Self {
        let mut wr = MaybeUninit::<ffi::ibv_send_wr>::uninit();
        let raw = wr.as_mut_ptr();
        // More entries than an `int` holds are more than any device takes, and so is the largest `int`.
        let num_sge = c_int::try_from(length).unwrap_or(c_int::MAX);
        // Only what the operation needs is stored, and not the whole structure zeroed: 119 instructions for a post and a poll of an
        // RDMA WRITE on the null provider, where C, which zeroes the rest, has 136.
        // SAFETY: `raw` points to memory for the structure. Libibverbs does not write to the list.
        unsafe {
            (&raw mut (*raw).wr_id).write(wr_id);
            (&raw mut (*raw).next).write(ptr::null_mut());
            (&raw mut (*raw).sg_list).write(list.cast_mut());
            (&raw mut (*raw).num_sge).write(num_sge);
            (&raw mut (*raw).opcode).write(opcode);
            (&raw mut (*raw).send_flags).write(0);
        }
        Self { wr: UnsafeCell::new(wr), slices: PhantomData }
    }

    #[inline]
    fn with_imm(mut self, imm_data: u32) -> Self {
        self.put_imm_data(imm_data);
        self
    }

    #[inline]
    fn with_remote(mut self, remote: RemoteSlice) -> Self {
        self.put_remote(remote);
        self
    }

    #[inline]
    fn with_atomic(mut self, remote: RemoteSlice, compare_add: u64, swap: u64) -> Self {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `raw` points to memory for the structure.
        unsafe {
            (&raw mut (*raw).wr.atomic.remote_addr).write(remote.address());
            (&raw mut (*raw).wr.atomic.compare_add).write(compare_add);
            (&raw mut (*raw).wr.atomic.swap).write(swap);
            (&raw mut (*raw).wr.atomic.rkey).write(remote.rkey());
        }
        self.if_atomic_on_a_word()
    }

    /// The request, or one that each queue refuses if it is an atomic operation on something else than a word. It is marked when it is
    /// built, so that a post need not look: it has more inline data than any queue takes.
    #[inline]
    pub(crate) fn if_atomic_on_a_word(mut self) -> Self {
        static UNFIT: ffi::ibv_sge = ffi::ibv_sge { addr: 0, length: u32::MAX, lkey: 0 };
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: the request is initialised, with its list. The list that it gets is there for ever, and no provider sees it.
        unsafe {
            if T::ATOMIC && is_atomic(raw) && !names_a_word(raw) {
                (*raw).sg_list = (&raw const UNFIT).cast_mut();
                (*raw).num_sge = 1;
                (*raw).send_flags |= ffi::ibv_send_flags::IBV_SEND_INLINE.0;
            }
        }
        self
    }

    #[inline]
    fn with_flag(mut self, flag: ffi::ibv_send_flags) -> Self {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `with_list` has initialised the flags.
        unsafe { (*raw).send_flags |= flag.0 };
        self
    }

    /// For the operations that invalidate a key, in the place of immediate data.
    #[inline]
    fn with_invalidated_rkey(mut self, rkey: u32) -> Self {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `raw` points to memory for the structure.
        unsafe { (&raw mut (*raw).__bindgen_anon_1.invalidate_rkey).write(rkey) };
        self
    }

    /// For operations with immediate data.
    #[inline]
    fn put_imm_data(&mut self, imm_data: u32) {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `raw` points to memory for the structure.
        unsafe { (&raw mut (*raw).__bindgen_anon_1.imm_data).write(imm_data.to_be()) };
    }

    /// For RDMA WRITE and RDMA READ.
    #[inline]
    fn put_remote(&mut self, remote: RemoteSlice) {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `raw` points to memory for the structure.
        unsafe {
            (&raw mut (*raw).wr.rdma.remote_addr).write(remote.address());
            (&raw mut (*raw).wr.rdma.rkey).write(remote.rkey());
        }
    }

    /// The request with another list, whose entries name regions: it has no inline data any more.
    ///
    /// # Safety
    ///
    /// The list has `length` entries, and it and the regions that they name are there whenever the request is used.
    #[inline]
    pub(crate) unsafe fn with_list_at(mut self, list: *const ffi::ibv_sge, length: usize) -> Self {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `raw` points to memory for the structure.
        unsafe {
            (&raw mut (*raw).sg_list).write(list.cast_mut());
            (&raw mut (*raw).num_sge).write(c_int::try_from(length).unwrap_or(c_int::MAX));
            // The address of a region's entry is the device's, and need not be one of the program's memory.
            (*raw).send_flags &= !ffi::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        self
    }

    #[inline]
    fn opcode(&self) -> Opcode {
        // SAFETY: `with_list` has initialised the field.
        unsafe { (*self.as_raw()).opcode }
    }

    /// The request is to have a completion when it has succeeded. Slots of the send queue become free only when a later
    /// signaled request has completed and was polled: signal one now and then.
    #[doc(alias = "IBV_SEND_SIGNALED")]
    #[inline]
    pub fn signaled(self) -> Self {
        self.with_flag(ffi::ibv_send_flags::IBV_SEND_SIGNALED)
    }

    /// The request is not to begin before the RDMA READs and atomics that were posted earlier have finished.
    #[doc(alias = "IBV_SEND_FENCE")]
    #[inline]
    pub fn fenced(self) -> Self {
        self.with_flag(ffi::ibv_send_flags::IBV_SEND_FENCE)
    }

    /// The peer's completion is a solicited one: it wakes a peer that waits for [`Notify::Solicited`](crate::Notify). For
    /// SEND and RDMA WRITE with immediate.
    #[doc(alias = "IBV_SEND_SOLICITED")]
    #[inline]
    pub fn solicited(self) -> Self {
        self.with_flag(ffi::ibv_send_flags::IBV_SEND_SOLICITED)
    }

    /// The identifier that the completion will carry.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: `with_list` has initialised the field.
        unsafe { (*self.as_raw()).wr_id }
    }

    /// Sets the identifier that the completion will carry.
    #[inline]
    pub fn set_wr_id(&mut self, wr_id: u64) {
        // SAFETY: `with_list` has initialised the field.
        unsafe { (*self.as_raw()).wr_id = wr_id };
    }

    /// Sets the peer's memory: the beginning of `remote` and its key.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the operation uses no memory of the peer's, or is an atomic one and the address not a multiple of 8.
    #[inline]
    pub fn set_remote(&mut self, remote: RemoteSlice) -> Result<()> {
        if let Opcode::IBV_WR_RDMA_WRITE | Opcode::IBV_WR_RDMA_WRITE_WITH_IMM | Opcode::IBV_WR_RDMA_READ = self.opcode()
        {
            self.put_remote(remote);
            return Ok(());
        }
        self.set_remote_of_atomic(remote)
    }

    #[inline(never)]
    fn set_remote_of_atomic(&mut self, remote: RemoteSlice) -> Result<()> {
        match self.opcode() {
            Opcode::IBV_WR_ATOMIC_CMP_AND_SWP | Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                must_be_aligned(remote)?;
                let raw = self.wr.get_mut().as_mut_ptr();
                // SAFETY: `with_atomic` has initialised the fields.
                unsafe {
                    (*raw).wr.atomic.remote_addr = remote.address();
                    (*raw).wr.atomic.rkey = remote.rkey();
                }
                Ok(())
            }
            opcode => Err(lacks(opcode, "the peer's memory", "only RDMA WRITE, RDMA READ and atomics have it")),
        }
    }

    /// Sets the immediate data, in host byte order.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the operation has none.
    #[inline]
    pub fn set_imm_data(&mut self, imm_data: u32) -> Result<()> {
        match self.opcode() {
            Opcode::IBV_WR_SEND_WITH_IMM | Opcode::IBV_WR_RDMA_WRITE_WITH_IMM => self.put_imm_data(imm_data),
            opcode => return Err(lacks(opcode, "immediate data", "only the operations with immediate data have it")),
        }
        Ok(())
    }

    /// The request in libibverbs' terms; valid as long as `self`.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_send_wr {
        self.wr.get().cast()
    }
}

/// Refuses what is no place for an atomic operation.
pub(crate) fn must_be_aligned(remote: RemoteSlice) -> Result<()> {
    let address = remote.address();
    if address % 8 == 0 {
        return Ok(());
    }
    let rule = "an atomic operation has an address that is a multiple of 8";
    Err(Error::invalid("ibv_post_send", "remote_addr", format_args!("{address:#x}"), rule))
}

/// A field was to be set that the operation does not have.
#[cold]
fn lacks(opcode: Opcode, field: &'static str, rule: &'static str) -> Error {
    Error::invalid("ibv_post_send", field, format!("set on a request of operation {}", name(opcode)), rule)
}

/// The name of an operation.
fn name(opcode: Opcode) -> &'static str {
    // SAFETY: the function returns a string that is there for ever.
    unsafe { CStr::from_ptr(ffi::ibv_wr_opcode_str(opcode)) }.to_str().unwrap_or("unknown")
}

// SAFETY: the request is valid for its transport, and in a cell.
unsafe impl<T: Transport> Request<ffi::ibv_send_wr, T> for SendRequest<'_, T> {
    const DATAGRAM: bool = T::DATAGRAM;

    #[inline]
    fn as_wr(&self) -> *mut ffi::ibv_send_wr {
        self.as_raw()
    }
}

impl<T: Transport> fmt::Debug for SendRequest<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: `with_list` has initialised the field.
        let num_sge = unsafe { (*self.as_raw()).num_sge };
        f.debug_struct("SendRequest")
            .field("transport", &T::NAME)
            .field("wr_id", &self.wr_id())
            .field("operation", &name(self.opcode()))
            .field("slices", &num_sge)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_what_its_operation_needs_in_the_order_of_the_wire() {
        let slices = [LocalSlice::new(0x1000, 64, 7).unwrap(); 2];
        let remote = RemoteSlice::new(0x2000, 64, 9).unwrap();
        let request: SendRequest<'_, Rc> =
            SendRequest::rdma_write_with_imm(5, &slices, remote, 0x1122_3344).signaled().fenced();
        // SAFETY: the constructor has initialised the fields that are read.
        unsafe {
            let wr = request.as_raw();
            assert_eq!(((*wr).wr_id, (*wr).num_sge), (5, 2));
            assert_eq!((*wr).opcode, Opcode::IBV_WR_RDMA_WRITE_WITH_IMM);
            assert_eq!((*wr).__bindgen_anon_1.imm_data.to_ne_bytes(), [0x11, 0x22, 0x33, 0x44]);
            assert_eq!(((*wr).wr.rdma.remote_addr, (*wr).wr.rdma.rkey), (0x2000, 9));
            let flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 | ffi::ibv_send_flags::IBV_SEND_FENCE.0;
            assert_eq!((*wr).send_flags, flags);
            assert_eq!((*(*wr).sg_list.add(1)).length, 64);
            assert!((*wr).next.is_null());
        }
    }
}
