//! [`FlushRequest`]: what was written is to be where it is seen, or safe.
//!
//! # Safety
//!
//! The builder is there: the queue pair was made to have it.
#![allow(unsafe_code)]

use std::hint::unreachable_unchecked;

use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_send_flags as Flags;
use crate::open_enum::open_enum;
use crate::queue_pair::{ExtendedSend, QueuePairBuilder, optional};
use crate::remote_slice::RemoteSlice;
use crate::transport::Rc;

const VERB: &str = "ibv_wr_flush";

bitflags::bitflags! {
    /// `enum ibv_placement_type`: how far a flush takes what was written.
    #[doc(alias = "ibv_placement_type")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PlacementType: u32 {
        /// To where the peer's processors and devices see it. The peer's region, and its queue pair, need
        /// [`FLUSH_GLOBAL`](crate::AccessFlags::FLUSH_GLOBAL).
        #[doc(alias = "IBV_FLUSH_GLOBAL")]
        const GLOBAL = ffi::ibv_placement_type::IBV_FLUSH_GLOBAL.0;
        /// To where it survives a loss of power. The peer's region, and its queue pair, need
        /// [`FLUSH_PERSISTENT`](crate::AccessFlags::FLUSH_PERSISTENT).
        #[doc(alias = "IBV_FLUSH_PERSISTENT")]
        const PERSISTENT = ffi::ibv_placement_type::IBV_FLUSH_PERSISTENT.0;
    }
}

open_enum! {
    /// `enum ibv_selectivity_level`: how much a flush takes along.
    #[doc(alias = "ibv_selectivity_level")]
    SelectivityLevel(u32) {
        /// A range.
        RANGE = ffi::ibv_selectivity_level::IBV_FLUSH_RANGE.0, "range";
        /// The whole memory region; address and length mean nothing.
        MEMORY_REGION = ffi::ibv_selectivity_level::IBV_FLUSH_MR.0, "memory region";
    }
}

/// FLUSH (`IBV_WR_FLUSH`): a request that completes when what was written to the peer's memory before it is where it is to be. Posted by
/// [`ExtendedSend::post_flush`]; `ibv_post_send` does not have it.
///
/// `wr_id` is the program's own number; the request's completion carries it.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, annex A19.
#[doc(alias = "IBV_WR_FLUSH")]
#[must_use = "a request does nothing before it is posted"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushRequest {
    wr_id: u64,
    flags: u32,
    remote: RemoteSlice,
    placement: PlacementType,
    level: SelectivityLevel,
}

impl FlushRequest {
    /// To flush `remote`, or the whole of the region that it belongs to.
    pub fn new(wr_id: u64, remote: RemoteSlice, placement: PlacementType, level: SelectivityLevel) -> Self {
        Self { wr_id, flags: 0, remote, placement, level }
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

    /// The length, placement and level as the wire has them. What does not fit would be cut off.
    fn on_the_wire(&self) -> Result<(usize, u8, u8)> {
        let invalid = |argument, value: String, rule: &str| Error::invalid(VERB, argument, value, rule);
        let level = u8::try_from(self.level.as_raw()).ok().filter(|level| *level < 4);
        let level = level.ok_or_else(|| invalid("level", self.level.to_string(), "the wire has 2 bits for it"))?;
        let placement = u8::try_from(self.placement.bits()).ok().filter(|bits| (1..16).contains(bits));
        let placement = placement
            .ok_or_else(|| invalid("type", format!("{:?}", self.placement), "it is GLOBAL, PERSISTENT or both"))?;
        let length = match self.level {
            SelectivityLevel::MEMORY_REGION => 0,
            _ => u32::try_from(self.remote.len())
                .map_err(|_| invalid("len", self.remote.len().to_string(), "the wire has 32 bits for it"))?,
        };
        Ok((length as usize, placement, level))
    }
}

impl QueuePairBuilder<Rc> {
    /// The extended interface is to have [flush](ExtendedSend::post_flush) too, which few devices and providers do. Default: no.
    #[doc(alias = "IBV_QP_EX_WITH_FLUSH")]
    pub fn extended_flush(mut self) -> Self {
        self.optional |= optional::FLUSH;
        self
    }
}

impl ExtendedSend<'_, Rc> {
    /// `ibv_wr_start`, `ibv_wr_flush`, `ibv_wr_complete`: hands a flush to the send queue, on a queue pair that was made with
    /// [`extended_flush`](QueuePairBuilder::extended_flush).
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the queue pair was made without; the range has more bytes than 32 bits tell; the placement is none.
    /// * [`Error::Post`]: as those of [`post_send`](Self::post_send).
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_wr_flush")]
    pub fn post_flush(&self, request: &FlushRequest) -> Result<()> {
        self.must_have(optional::FLUSH, VERB, "extended_flush")?;
        let (length, placement, level) = request.on_the_wire()?;
        let remote = request.remote;
        // SAFETY: the queue pair has the builder.
        Ok(unsafe {
            self.post_built(request.wr_id, request.flags, |qp| match (*qp).wr_flush {
                Some(build) => build(qp, remote.rkey(), remote.address(), length, placement, level),
                None => unreachable_unchecked(),
            })
        }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_wire_has_no_room_for_is_refused() {
        let long = RemoteSlice::new(0, 1 << 32, 7).unwrap();
        let wire = |remote, placement, level| FlushRequest::new(1, remote, placement, level).on_the_wire();
        let error = |placement, level| wire(long, placement, level).unwrap_err().to_string();
        let (global, range) = (PlacementType::GLOBAL, SelectivityLevel::RANGE);
        assert!(error(global, range).contains("len is 4294967296"));
        let region = SelectivityLevel::MEMORY_REGION;
        assert_eq!(wire(long, PlacementType::all(), region).unwrap(), (0, 3, 1));
        assert!(error(PlacementType::empty(), region).contains("GLOBAL, PERSISTENT or both"));
        assert!(error(PlacementType::from_bits_retain(1 << 8), region).contains("GLOBAL, PERSISTENT or both"));
        assert!(error(global, SelectivityLevel::from_raw(4)).contains("level is unknown (4)"));
        let short = RemoteSlice::new(0, u64::from(u32::MAX), 7).unwrap();
        assert_eq!(wire(short, global, range).unwrap(), (u32::MAX as usize, 1, 0));
    }
}
