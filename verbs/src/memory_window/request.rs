//! [`BindRequest`] and [`UnbindRequest`].

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::access_flags::AccessFlags;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_send_flags as Flags;
use crate::memory_region::{Memory, MemoryRegion, Registered};
use crate::range::resolve;
use crate::remote_slice::RemoteSlice;
use crate::send_request::SendRequest;
use crate::transport::Connected;

const VERB: &str = "ibv_bind_mw";

/// `struct ibv_mw_bind`: a request to bind a memory window to a range of a region. It holds the region, and can be posted more than once.
///
/// `wr_id` is the program's own number; the request's completion carries it.
///
/// The window is named when the request is posted, and has to be there then:
///
/// ```compile_fail,E0382
/// # use verbs::{BindRequest, MemoryWindow, QueuePair, Rc, WindowType2};
/// # fn example(qp: &QueuePair<Rc>, mut window: MemoryWindow<WindowType2>, bind: &BindRequest) -> verbs::Result<()> {
/// drop(window);
/// qp.post_bind(&mut window, bind)?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_mw_bind")]
#[doc(alias = "IBV_WR_BIND_MW")]
#[must_use = "a request does nothing before it is posted"]
#[derive(Clone)]
pub struct BindRequest {
    pub(super) wr_id: u64,
    pub(super) flags: u32,
    pub(super) region: Arc<dyn Registered>,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) access: AccessFlags,
}

impl BindRequest {
    /// To bind a window to `range` of a region, and to give peers these rights to it. With [`ZERO_BASED`](AccessFlags::ZERO_BASED), which a
    /// window of type 1 cannot have, a peer's addresses begin at 0 at the beginning of the window, and otherwise they are the region's.
    ///
    /// # Errors
    ///
    /// * [`Error::OutOfRange`]: the range does not lie in the region.
    /// * [`Error::InvalidArgument`]: the range is empty; the region was registered without [`MW_BIND`](AccessFlags::MW_BIND); `access` has
    ///   anything but remote rights and `ZERO_BASED`, or lets peers write and the region lacks `LOCAL_WRITE`.
    pub fn new<M: Memory + Send + Sync>(
        wr_id: u64,
        region: &MemoryRegion<M>,
        range: impl RangeBounds<usize>,
        access: AccessFlags,
    ) -> Result<Self> {
        let range = resolve(range, region.len(), "memory region")?;
        if range.is_empty() {
            return Err(Error::invalid(
                VERB,
                "length",
                0,
                "a window has at least one byte; to unbind it, see `UnbindRequest`",
            ));
        }
        access.check_for_window(region.access())?;
        let (address, length) = (region.address() + range.start as u64, range.len() as u64);
        Ok(Self { wr_id, flags: 0, region: region.registered(), address, length, access })
    }

    /// As [`SendRequest::signaled`](crate::SendRequest::signaled).
    pub fn signaled(mut self) -> Self {
        self.flags |= Flags::IBV_SEND_SIGNALED.0;
        self
    }

    /// As [`SendRequest::fenced`](crate::SendRequest::fenced).
    pub fn fenced(mut self) -> Self {
        self.flags |= Flags::IBV_SEND_FENCE.0;
        self
    }
}

impl BindRequest {
    pub(super) fn info(&self) -> ffi::ibv_mw_bind_info {
        ffi::ibv_mw_bind_info {
            mr: self.region.as_raw(),
            addr: self.address,
            length: self.length,
            mw_access_flags: self.access.bits(),
        }
    }

    /// The memory as a peer will know it.
    pub(super) fn told(&self, rkey: u32) -> Result<RemoteSlice> {
        let address = if self.access.contains(AccessFlags::ZERO_BASED) { 0 } else { self.address };
        // The region's addresses do not run past the end of the address space.
        RemoteSlice::new(address, self.length, rkey)
            .ok_or_else(|| Error::invalid(VERB, "length", self.length, "it runs past the end of the address space"))
    }
}

impl std::fmt::Debug for BindRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (wr_id, address, length, access) = (self.wr_id, self.address, self.length, self.access);
        write!(f, "BindRequest({wr_id}, {length} bytes at {address:#x}, {access:?})")
    }
}

/// A request to unbind a memory window: after it, the window's key opens nothing.
///
/// For a window of type 1 it binds no bytes; for one of type 2 it invalidates the key (`IBV_WR_LOCAL_INV`).
#[doc(alias = "IBV_WR_LOCAL_INV")]
#[must_use = "a request does nothing before it is posted"]
#[derive(Clone, Copy, Debug)]
pub struct UnbindRequest {
    pub(super) wr_id: u64,
    pub(super) flags: u32,
}

impl UnbindRequest {
    /// The request that invalidates a key.
    pub(super) fn invalidation<T: Connected>(&self, rkey: u32) -> SendRequest<'static, T> {
        let mut request = SendRequest::local_invalidate(self.wr_id, rkey);
        if self.flags & Flags::IBV_SEND_SIGNALED.0 != 0 {
            request = request.signaled();
        }
        if self.flags & Flags::IBV_SEND_FENCE.0 != 0 {
            request = request.fenced();
        }
        request
    }

    /// `wr_id` is the program's own number; the request's completion carries it, and is known by it when the window is
    /// [released](crate::MemoryWindow::release).
    pub fn new(wr_id: u64) -> Self {
        Self { wr_id, flags: 0 }
    }

    /// As [`SendRequest::signaled`](crate::SendRequest::signaled).
    pub fn signaled(mut self) -> Self {
        self.flags |= Flags::IBV_SEND_SIGNALED.0;
        self
    }

    /// As [`SendRequest::fenced`](crate::SendRequest::fenced).
    pub fn fenced(mut self) -> Self {
        self.flags |= Flags::IBV_SEND_FENCE.0;
        self
    }
}
