//! Connecting: RESET to INIT to RTR to RTS.

use crate::access_flags::AccessFlags;
use crate::address_handle_attributes::AddressHandleAttributes;
use crate::endpoint::{Endpoint, LocalEndpoint};
use crate::error::Result;
use crate::ffi::ibv_qp_type;
use crate::queue_pair::{ConnectOptions, QueuePair, QueuePairModification, QueuePairState};
use crate::transport::Connected;

impl<T: Connected> QueuePair<T> {
    /// `ibv_modify_qp` from RESET to INIT: from now on, receives can be posted.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is in another state, or the port or P_Key index does not exist.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.3.1.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&self, local: &LocalEndpoint, options: &ConnectOptions) -> Result<()> {
        // Some devices refuse a right to operations that the transport does not have.
        let lacking = if is_reliable::<T>() { AccessFlags::empty() } else { UC_LACKS };
        let init = QueuePairModification::to(QueuePairState::INIT).port(local.port).pkey_index(options.pkey_index);
        self.modify(&init.access(options.access.difference(lacking)))
    }

    /// `ibv_modify_qp` from INIT to RTR: from now on, messages of `remote` arrive. On RoCE the kernel first resolves the
    /// link address of the remote GID, which can take a second.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): a value does not fit its field, the path MTU is above an active
    ///   one, or the link layer needs GIDs and one end has none.
    /// * `EINVAL`: the queue pair is in another state, or the device refuses a value; the message says which.
    /// * `ETIMEDOUT`: nobody answers at the remote GID.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.3.1.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&self, local: &LocalEndpoint, remote: &Endpoint, options: &ConnectOptions) -> Result<()> {
        options.check()?;
        let rtr = QueuePairModification::to(QueuePairState::READY_TO_RECEIVE)
            .path_mtu(options.path_mtu_between(local, remote)?)
            .dest_qp_num(remote.qp_num)
            .rq_psn(remote.psn)
            .address(&address(local, remote, options)?);
        self.modify(&match is_reliable::<T>() {
            true => rtr.max_dest_rd_atomic(options.max_dest_rd_atomic).min_rnr_timer(options.min_rnr_timer),
            false => rtr,
        })
    }

    /// `ibv_modify_qp` from RTR to RTS: from now on, messages can be sent.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): a value does not fit its field.
    /// * `EINVAL`: the queue pair is in another state, or the device refuses a value; the message says which.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.3.1.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&self, local: &LocalEndpoint, options: &ConnectOptions) -> Result<()> {
        options.check()?;
        let rts = QueuePairModification::to(QueuePairState::READY_TO_SEND).sq_psn(local.endpoint.psn);
        self.modify(&match is_reliable::<T>() {
            true => rts
                .ack_timeout(options.ack_timeout)
                .retry_count(options.retry_count)
                .rnr_retry_count(options.rnr_retry_count)
                .max_rd_atomic(options.max_rd_atomic),
            false => rts,
        })
    }

    /// Makes the three transitions of `ibv_modify_qp`, to INIT, RTR and RTS: connects the queue pair with the one at
    /// `remote`, which has to do the same. The first one is left out if it was made before, so that receives can be posted
    /// before the peer sends.
    ///
    /// # Errors
    ///
    /// As those of [`init`](Self::init), [`ready_to_receive`](Self::ready_to_receive) and
    /// [`ready_to_send`](Self::ready_to_send). A failed transition changes nothing; it can be made again with other values.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(&self, local: &LocalEndpoint, remote: &Endpoint, options: &ConnectOptions) -> Result<()> {
        if self.state()? != QueuePairState::INIT {
            self.init(local, options)?;
        }
        self.ready_to_receive(local, remote, options)?;
        self.ready_to_send(local, options)
    }
}

/// Operations of peers that UC does not have.
const UC_LACKS: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::FLUSH_GLOBAL)
    .union(AccessFlags::FLUSH_PERSISTENT);

/// Whether there are acknowledgements, and with them RDMA READ and atomics.
fn is_reliable<T: Connected>() -> bool {
    T::TYPE == ibv_qp_type::IBV_QPT_RC
}

/// The path to the peer.
fn address(local: &LocalEndpoint, remote: &Endpoint, options: &ConnectOptions) -> Result<AddressHandleAttributes> {
    let mut address = AddressHandleAttributes::between(local, remote)?;
    address.service_level = options.service_level;
    address.source_path_bits = options.source_path_bits;
    if let Some(route) = &mut address.global_route {
        route.hop_limit = options.hop_limit;
        route.traffic_class = options.traffic_class;
        route.flow_label = options.flow_label;
    }
    Ok(address)
}
