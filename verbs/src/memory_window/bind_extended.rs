//! Binding memory windows through the extended interface.
//!
//! # Safety
//!
//! As in [`bind`](super::bind). The builder is there: the queue pair was made to have it.
#![allow(unsafe_code)]

use std::hint::unreachable_unchecked;

use super::bind::{bind_type_2, check, unbind_type_2};
use super::{BindRequest, MemoryWindow, UnbindRequest, WindowType2};
use crate::error::Result;
use crate::queue_pair::{ExtendedSend, optional};
use crate::remote_slice::RemoteSlice;
use crate::transport::Connected;

impl<T: Connected> ExtendedSend<'_, T> {
    /// `ibv_wr_start`, `ibv_wr_bind_mw`, `ibv_wr_complete`: as [`QueuePair::post_bind`](crate::QueuePair::post_bind), for a window of type
    /// 2, on a queue pair that was made with [`extended_memory_windows`](crate::QueuePairBuilder::extended_memory_windows).
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the queue pair was made without; the window, the region and the queue
    ///   pair are not of one context; the window is of another domain than the region, belongs to another queue pair, or [is freed](MemoryWindow::is_freed).
    /// * [`Error::Post`](crate::Error::Post): as those of [`post_send`](Self::post_send).
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_wr_bind_mw")]
    pub fn post_bind(&self, window: &mut MemoryWindow<WindowType2>, request: &BindRequest) -> Result<RemoteSlice> {
        self.must_have(optional::BIND_MW, "ibv_wr_bind_mw", "extended_memory_windows")?;
        check(self.queue_pair(), window, request)?;
        bind_type_2(self.queue_pair(), window, request, |mw, rkey| {
            let info = request.info();
            // SAFETY: the queue pair has the builder, the window and the region are alive, and `info` outlives the call.
            unsafe {
                self.post_built(request.wr_id, request.flags, |qp| match (*qp).wr_bind_mw {
                    Some(build) => build(qp, mw.as_ptr(), rkey, &info),
                    None => unreachable_unchecked(),
                })
            }
        })
    }

    /// `ibv_wr_start`, `ibv_wr_local_inv`, `ibv_wr_complete`: as [`QueuePair::post_unbind`](crate::QueuePair::post_unbind), for a window of
    /// type 2.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the window and the queue pair are not of one context; the window was
    ///   not bound since it was made or released, belongs to another queue pair, or [is freed](MemoryWindow::is_freed).
    /// * [`Error::Post`](crate::Error::Post): as those of [`post_send`](Self::post_send).
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_wr_local_inv")]
    pub fn post_unbind(&self, window: &mut MemoryWindow<WindowType2>, request: &UnbindRequest) -> Result<()> {
        unbind_type_2(self.queue_pair(), window, request, |invalidation| self.post_send(invalidation))
    }
}
