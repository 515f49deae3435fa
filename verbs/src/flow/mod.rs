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

use crate::context::must_be_made_of;
use crate::counters::{CounterDescription, Counters};
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
    counters: Vec<Counters>,
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
        Ok(Flow { flow, rule: rule.clone(), counters: Vec::new(), qp: self.clone() })
    }
}

impl Flow {
    /// Takes over a flow that was made by other means. Dropping it destroys it.
    ///
    /// # Safety
    ///
    /// * `flow` is alive, leads to `qp`, was made of what `rule` says, and nobody else destroys it.
    /// * What its rule names besides (counters, an action of ESP, by other handles than those in `rule`) outlives it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it, or what `rule` names, is of another context than the queue pair. It then
    /// still belongs to the caller.
    pub unsafe fn from_raw(flow: NonNull<ffi::ibv_flow>, qp: &RawPacketQueuePair, rule: &FlowRule) -> Result<Self> {
        const VERB: &str = "ibv_create_flow";
        let context = qp.protection_domain().context();
        rule.must_be_of(context, VERB)?;
        // SAFETY: the flow is alive.
        must_be_made_of(VERB, &[("context", unsafe { flow.as_ref().context } == context.as_raw())])?;
        Ok(Self { flow, rule: rule.clone(), counters: Vec::new(), qp: qp.clone() })
    }

    /// `ibv_attach_counters_point_flow`: has the counter at `index` count this of a flow that there is already, which then holds the
    /// counters. (For counters that a rule names, see [`Counters::attach`].)
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the counters come from another [`Context`](crate::Context).
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has no counters, or attaches them when a flow is made only.
    /// * `EBUSY`, `EINVAL`: they count already, or the device does not count this.
    ///
    /// # References
    ///
    /// [ibv_attach_counters_point_flow(3)](https://man7.org/linux/man-pages/man3/ibv_attach_counters_point_flow.3.html)
    #[doc(alias = "ibv_attach_counters_point_flow")]
    pub fn attach_counters(&mut self, counters: &Counters, description: CounterDescription, index: u32) -> Result<()> {
        let context = self.qp.protection_domain().context();
        context.must_be(counters.context(), "ibv_attach_counters_point_flow", "counters")?;
        self.counters.push(counters.clone());
        // SAFETY: the flow is alive, and holds the counters.
        let attached = unsafe { counters.attach_point(description, index, self.as_raw()) };
        attached.inspect_err(|_| drop(self.counters.pop()))
    }

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
        f.debug_struct("Flow")
            .field("rule", &self.rule)
            .field("counters", &self.counters)
            .field("queue_pair", &self.qp)
            .finish()
    }
}
