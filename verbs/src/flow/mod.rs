//! [`Flow`]: which packets a raw packet queue pair receives.
//!
//! # Safety
//!
//! `Flow::flow` came from `ibv_create_flow` and is destroyed only when the `Flow` is dropped. What its rule names is held until then.
#![allow(unsafe_code)]

mod rule;
mod specification;

use std::fmt;
use std::ptr::NonNull;

use crate::error::Result;
use crate::ffi;
use crate::raw_packet_queue_pair::RawPacketQueuePair;
use crate::returns::null_and_errno;

pub use rule::{EthernetMatch, FlowRule, Ipv4Match, Ipv6Match, PortMatch};

/// `struct ibv_flow`: leads the packets that a [`FlowRule`] tells to a queue pair.
///
/// Dropping it ends that.
#[doc(alias = "ibv_flow")]
#[must_use = "dropping it ends the flow"]
pub struct Flow {
    flow: NonNull<ffi::ibv_flow>,
    // Let go after the flow is destroyed.
    rule: FlowRule,
    qp: RawPacketQueuePair,
}

// SAFETY: a flow is only passed to libibverbs, which does not write to it.
unsafe impl Send for Flow {}
// SAFETY: as above.
unsafe impl Sync for Flow {}

impl Drop for Flow {
    fn drop(&mut self) {
        // SAFETY: the flow is alive, and is destroyed only here.
        let _ = unsafe { ffi::ibv_destroy_flow(self.flow.as_ptr()) };
    }
}

impl RawPacketQueuePair {
    /// `ibv_create_flow`: leads the packets that `rule` tells to this queue pair.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): counters or an action of the rule come from another
    ///   [`Context`](crate::Context).
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has no flows, or lacks what the rule asks for.
    /// * `EPERM`: it takes the capability `CAP_NET_RAW`.
    /// * `EINVAL`, `ENOMEM`, `EBUSY`: the device does not take the rule.
    ///
    /// # References
    ///
    /// [ibv_create_flow(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
    #[doc(alias = "ibv_create_flow")]
    pub fn create_flow(&self, rule: &FlowRule) -> Result<Flow> {
        const VERB: &str = "ibv_create_flow";
        rule.must_be_of(self.protection_domain().context(), VERB)?;
        let mut raw = rule.to_raw();
        // SAFETY: the queue pair is alive, the rule is as long as it says and outlives the call, and what it points to is alive.
        let flow =
            null_and_errno(unsafe { ffi::ibv_create_flow(self.as_raw(), raw.as_mut_ptr()) }).map_err(|errno| {
                let remedy = if errno.0 == libc::EPERM { "flows take the capability CAP_NET_RAW" } else { "" };
                errno.with_remedy(VERB, format_args!("{self:?}, {rule:?}"), remedy)
            })?;
        Ok(Flow { flow, rule: rule.clone(), qp: self.clone() })
    }
}

impl Flow {
    /// Which packets it leads.
    pub fn rule(&self) -> &FlowRule {
        &self.rule
    }

    /// Where it leads them.
    pub fn queue_pair(&self) -> &RawPacketQueuePair {
        &self.qp
    }

    /// The flow in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_flow {
        self.flow.as_ptr()
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flow").field("rule", &self.rule).field("queue_pair", &self.qp).finish()
    }
}
