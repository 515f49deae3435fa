//! [`InlineSlice`]: bytes that a request carries along.

use std::fmt;
use std::marker::PhantomData;

use crate::ffi;

/// A piece of the program's own memory, for the list of a request with inline data.
///
/// The provider copies inline data while the request is posted: the memory need not be registered, and may be used for
/// something else as soon as the post has returned.
///
/// ```
/// use verbs::{InlineSlice, SendRequest};
///
/// let header = [7, 0, 0, 1];
/// let slices = [InlineSlice::new(&header), InlineSlice::new(b"payload")];
/// let request: SendRequest<'_> = SendRequest::send_inline(1, &slices).signaled();
/// # assert_eq!(request.wr_id(), 1);
/// ```
///
/// The memory has to be there until then:
///
/// ```compile_fail,E0505
/// # use verbs::{InlineSlice, QueuePair, Rc, SendRequest};
/// # fn example(qp: &QueuePair<Rc>, message: Vec<u8>) -> verbs::Result<()> {
/// let slices = [InlineSlice::new(&message)];
/// let request = SendRequest::send_inline(1, &slices);
/// drop(message);
/// qp.post_send(&request)?;
/// # Ok(()) }
/// ```
///
/// Nor is there anything to read into:
///
/// ```compile_fail,E0308
/// # use verbs::{InlineSlice, RemoteSlice, SendRequest};
/// # fn example(remote: RemoteSlice) {
/// let request = SendRequest::rdma_read(1, &[InlineSlice::new(&[0; 8])], remote);
/// # }
/// ```
#[doc(alias = "IBV_SEND_INLINE")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct InlineSlice<'a> {
    sge: ffi::ibv_sge,
    data: PhantomData<&'a [u8]>,
}

impl<'a> InlineSlice<'a> {
    /// The bytes of `data`.
    #[inline]
    pub fn new(data: &'a [u8]) -> Self {
        // More bytes than 32 bits tell are more than any queue pair takes, and so are as many as they do.
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Self { sge: ffi::ibv_sge { addr: data.as_ptr() as u64, length, lkey: 0 }, data: PhantomData }
    }
}

impl<'a> From<&'a [u8]> for InlineSlice<'a> {
    #[inline]
    fn from(data: &'a [u8]) -> Self {
        Self::new(data)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for InlineSlice<'a> {
    #[inline]
    fn from(data: &'a [u8; N]) -> Self {
        Self::new(data)
    }
}

impl fmt::Debug for InlineSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InlineSlice({:#x}, {} bytes)", self.sge.addr, self.sge.length)
    }
}
