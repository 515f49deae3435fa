//! [`ConnectionParameters`]: what two ends of a connection tell each other.
//!
//! # Safety
//!
//! `rdma_conn_param` is made of integers and a pointer, and all zeroes are a valid one.
#![allow(unsafe_code)]

use std::mem;
use std::ptr;

use crate::error::{Error, Result};
use crate::ffi;
use crate::port_space::{Carrier, PortSpace};

/// How many RDMA READs and atomics may be under way at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// As many as the device can; when accepting, no more than the peer asked for.
    #[doc(alias = "RDMA_MAX_RESP_RES")]
    #[doc(alias = "RDMA_MAX_INIT_DEPTH")]
    #[default]
    Max,
    /// So many, up to the device's limit; when accepting in [one call](crate::ConnectionRequest::accept), no more than the peer asked for, or
    /// answers. ([`Id::accept`](crate::Id::accept) takes the number as it is.)
    Exactly(u8),
}

impl Depth {
    /// The depth of who accepts: no more than what was asked for, and by default within the device's limit. More requests than the peer
    /// answers would end the connection.
    pub(crate) fn when_asked(self, asked: u8, limit: u32) -> u8 {
        match self {
            Self::Exactly(depth) => depth.min(asked),
            // 255 means something else to librdmacm.
            Self::Max => u32::from(asked).min(limit).min(254) as u8,
        }
    }

    fn to_raw(self, argument: &'static str, call: &'static str) -> Result<u8> {
        match self {
            Self::Max => Ok(u8::MAX),
            Self::Exactly(u8::MAX) => Err(Error::invalid(call, argument, u8::MAX, "it is 0 to 254, or Depth::Max")),
            Self::Exactly(depth) => Ok(depth),
        }
    }
}

/// `struct rdma_conn_param`: what [`Id::connect`](crate::Id::connect) and [`Id::accept`](crate::Id::accept) tell the peer.
#[doc(alias = "rdma_conn_param")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionParameters {
    /// Bytes for the peer's program, up to a limit of the [port space](PortSpace::max_request_private_data). The peer gets zeroes
    /// behind them: a length that matters has to be among the bytes.
    pub private_data: Vec<u8>,
    /// How many RDMA READs and atomics of the peer the local queue pair answers at once. Connected port spaces only.
    pub responder_resources: Depth,
    /// How many RDMA READs and atomics the local queue pair has under way at once. Connected port spaces only.
    pub initiator_depth: Depth,
    /// Whether the hardware controls the flow.
    pub flow_control: bool,
    /// How often a packet that is not acknowledged is sent again, 0 to 7. Ignored when accepting: the other end's holds.
    pub retry_count: u8,
    /// How often a message is sent again for which the peer has no receive, 0 to 7; 7: for ever.
    pub rnr_retry_count: u8,
    /// Whether the queue pair has a shared receive queue.
    pub srq: bool,
    /// The number of the queue pair.
    pub qp_num: u32,
}

impl ConnectionParameters {
    /// For the queue pair of this number: no private data, 7 retries of each kind, and as many RDMA READs and atomics as possible.
    pub fn new(qp_num: u32) -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: Depth::Max,
            initiator_depth: Depth::Max,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qp_num,
        }
    }

    /// The parameters in librdmacm's terms. They point to the private data in `self`.
    pub(crate) fn to_raw(
        &self,
        call: &'static str,
        space: PortSpace,
        carrier: Carrier,
    ) -> Result<ffi::rdma_conn_param> {
        for (argument, value) in [("retry_count", self.retry_count), ("rnr_retry_count", self.rnr_retry_count)] {
            if value > 7 {
                return Err(Error::invalid(call, argument, value, "it is 0 to 7"));
            }
        }
        if self.qp_num > 0xff_ffff {
            return Err(Error::invalid(call, "qp_num", format!("{:#x}", self.qp_num), "it has 24 bits"));
        }
        // SAFETY: all zeroes are a valid structure.
        let mut raw: ffi::rdma_conn_param = unsafe { mem::zeroed() };
        raw.private_data_len = space.check(carrier, call, &self.private_data)?;
        raw.private_data = if self.private_data.is_empty() { ptr::null() } else { self.private_data.as_ptr().cast() };
        raw.responder_resources = self.responder_resources.to_raw("responder_resources", call)?;
        raw.initiator_depth = self.initiator_depth.to_raw("initiator_depth", call)?;
        raw.flow_control = self.flow_control.into();
        raw.retry_count = self.retry_count;
        raw.rnr_retry_count = self.rnr_retry_count;
        raw.srq = self.srq.into();
        raw.qp_num = self.qp_num;
        Ok(raw)
    }
}

/// What the peer told, in a connection request or in its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerParameters {
    /// The peer's bytes, and zeroes behind them up to the size of the message: 56 bytes in a request over InfiniBand or RoCE, 196 in
    /// an answer. Empty where no message carried any.
    pub private_data: Vec<u8>,
    /// How many RDMA READs and atomics the peer wants this end to answer at once.
    pub responder_resources: u8,
    /// How many RDMA READs and atomics this end may have under way at once, since the peer answers no more.
    pub initiator_depth: u8,
    /// Whether the hardware controls the flow.
    pub flow_control: bool,
    /// How often a packet is sent again.
    pub retry_count: u8,
    /// How often a message is sent again for which there is no receive.
    pub rnr_retry_count: u8,
    /// Whether the peer's queue pair has a shared receive queue.
    pub srq: bool,
    /// The number of the peer's queue pair.
    pub qp_num: u32,
}

impl PeerParameters {
    /// Copies what an event carries.
    ///
    /// # Safety
    ///
    /// `raw.private_data` is null or points to as many bytes as the length says.
    pub(crate) unsafe fn copy(raw: &ffi::rdma_conn_param) -> Self {
        Self {
            // SAFETY: as the caller says.
            private_data: unsafe { private_data(raw.private_data.cast(), raw.private_data_len) },
            responder_resources: raw.responder_resources,
            initiator_depth: raw.initiator_depth,
            flow_control: raw.flow_control != 0,
            retry_count: raw.retry_count,
            rnr_retry_count: raw.rnr_retry_count,
            srq: raw.srq != 0,
            qp_num: raw.qp_num,
        }
    }
}

/// # Safety
///
/// `bytes` is null or points to as many bytes as the length says.
pub(crate) unsafe fn private_data(bytes: *const u8, length: u8) -> Vec<u8> {
    match bytes.is_null() {
        true => Vec::new(),
        // SAFETY: as the caller says.
        false => unsafe { std::slice::from_raw_parts(bytes, length.into()) }.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(parameters: &ConnectionParameters) -> Result<ffi::rdma_conn_param> {
        parameters.to_raw("rdma_connect", PortSpace::TCP, Carrier::Request)
    }

    #[test]
    fn what_was_asked_for_is_accepted_up_to_the_limit_and_what_can_be_said() {
        for (asked, limit, depth) in [(16, 128, 16), (200, 128, 128), (255, 255, 254), (255, 1 << 20, 254), (0, 128, 0)]
        {
            assert_eq!(Depth::Max.when_asked(asked, limit), depth);
            let mut parameters = ConnectionParameters::new(1);
            parameters.responder_resources = Depth::Exactly(depth);
            assert!(raw(&parameters).is_ok());
        }
        assert_eq!(Depth::Exactly(3).when_asked(1, 128), 1);
        assert_eq!(Depth::Exactly(3).when_asked(5, 128), 3);
        assert_eq!(Depth::Exactly(200).when_asked(255, 128), 200, "it is the device that refuses it");
    }

    #[test]
    fn values_beyond_their_fields_are_refused() {
        let mut parameters = ConnectionParameters::new(0x12);
        assert_eq!(raw(&parameters).unwrap().initiator_depth, 255, "the most that the device can");
        parameters.retry_count = 8;
        assert_eq!(raw(&parameters).unwrap_err().to_string(), "rdma_connect: retry_count is 8, but it is 0 to 7");
        parameters.retry_count = 7;
        parameters.initiator_depth = Depth::Exactly(255);
        assert!(raw(&parameters).unwrap_err().to_string().contains("Depth::Max"));
        parameters.initiator_depth = Depth::Exactly(3);
        parameters.qp_num = 1 << 24;
        assert!(raw(&parameters).unwrap_err().to_string().contains("24 bits"));
        parameters.qp_num = 7;
        parameters.private_data = b"abc".to_vec();
        let raw = raw(&parameters).unwrap();
        assert_eq!((raw.private_data_len, raw.qp_num, raw.initiator_depth), (3, 7, 3));
        // SAFETY: the parameters are alive.
        assert_eq!(unsafe { PeerParameters::copy(&raw) }.private_data, b"abc");
    }
}
