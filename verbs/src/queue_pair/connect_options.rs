//! [`ConnectOptions`].

use crate::access_flags::AccessFlags;
use crate::endpoint::{Endpoint, LocalEndpoint};
use crate::error::{Error, Result};
use crate::port::Mtu;
use crate::queue_pair::modify::VERB;
use crate::timers::{AckTimeout, RnrTimer};

/// How two queue pairs of RC, or of UC, are connected. The defaults suit most programs; both ends must agree on the path MTU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// What the peer may do through this queue pair; the rights of the region count too. Of these, UC has RDMA WRITE only. Default:
    /// all of it.
    pub access: AccessFlags,
    /// The index of the partition key in the port's table. Default: 0.
    pub pkey_index: u16,
    /// The path MTU. Default: the smaller one of both ends' active MTUs, or of the local end's alone where the remote one is
    /// not known.
    pub path_mtu: Option<Mtu>,
    /// The service level, 0 to 15. Default: 0.
    pub service_level: u8,
    /// The lower bits of the local LID (LMC). Default: 0.
    pub source_path_bits: u8,
    /// How many routers a packet may cross; on RoCE the kernel may set another number. Default: 64.
    pub hop_limit: u8,
    /// The traffic class (on RoCE v2 the DSCP and ECN bits). Default: 0.
    pub traffic_class: u8,
    /// The flow label, 20 bits. Default: 0.
    pub flow_label: u32,
    /// RC: how long to wait for an acknowledgement. Default: code 14, 67 ms.
    pub ack_timeout: AckTimeout,
    /// RC: how often to send again when no acknowledgement came, 0 to 7. Default: 7. (On rxe, 7 means without end.)
    pub retry_count: u8,
    /// RC: how often to send again to a peer that has no receive posted, 0 to 7; 7 means without end. Default: 7.
    /// (rxe of Linux 6.1 may count such a wait against [`retry_count`](Self::retry_count) too.)
    pub rnr_retry_count: u8,
    /// RC: how long the peer has to wait before it sends again to us, when we have no receive posted. Default: code 12, 0.64 ms.
    pub min_rnr_timer: RnrTimer,
    /// RC: how many RDMA READs and atomics to have under way. Default: 1; not more than the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
    /// RC: how many RDMA READs and atomics of the peer to serve at once. Default: 1.
    pub max_dest_rd_atomic: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            access: AccessFlags::REMOTE,
            pkey_index: 0,
            path_mtu: None,
            service_level: 0,
            source_path_bits: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            ack_timeout: AckTimeout::default(),
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: RnrTimer::default(),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
        }
    }
}

impl ConnectOptions {
    /// Values that do not fit the fields of the wire. The device would cut some of them off.
    pub(super) fn check(&self) -> Result<()> {
        let limits = [
            ("service_level", u32::from(self.service_level), 15),
            ("flow_label", self.flow_label, 0xf_ffff),
            ("retry_cnt", u32::from(self.retry_count), 7),
            ("rnr_retry", u32::from(self.rnr_retry_count), 7),
        ];
        match limits.into_iter().find(|(_, value, limit)| value > limit) {
            Some((argument, value, limit)) => Err(Error::invalid(VERB, argument, value, format!("it is 0 to {limit}"))),
            None => Ok(()),
        }
    }

    /// The path MTU to use between two ends.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the MTU asked for is above one of the ends' active MTUs. Not every device refuses it, and
    /// then each message that is longer gets lost.
    pub fn path_mtu_between(&self, local: &LocalEndpoint, remote: &Endpoint) -> Result<Mtu> {
        let active = local.port_attributes.active_mtu();
        let smallest = remote.mtu.map_or(active, |mtu| mtu.min(active));
        match self.path_mtu {
            Some(mtu) if mtu > smallest => {
                let whose = if mtu > active { "the local port's" } else { "the peer's port's" };
                Err(Error::invalid(VERB, "path_mtu", mtu, format!("{whose} active MTU is {smallest}")))
            }
            Some(mtu) => Ok(mtu),
            None => Ok(smallest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_a_peer_that_is_late_is_waited_for_and_one_that_is_gone_is_noticed() {
        let options = ConnectOptions::default();
        assert_eq!((options.retry_count, options.rnr_retry_count), (7, 7));
        assert_ne!(options.ack_timeout, AckTimeout::INFINITE);
        // Code 0 is the longest time, and not none.
        assert_ne!(options.min_rnr_timer.code(), 0);
        options.check().unwrap();
    }
}
