//! Why `ibv_modify_qp` failed: the kernel says only "Invalid argument".

use crate::address_handle_attributes::AddressHandleAttributes;
use crate::ffi::ibv_qp_attr_mask as M;
use crate::queue_pair::transition::{self, Transition, names};
use crate::queue_pair::{QueuePair, QueuePairModification};
use crate::returns::Errno;
use crate::transport::Transport;

impl<T: Transport> QueuePair<T> {
    /// What is wrong with a modification that failed, as far as it can be found out; empty if it cannot.
    #[cold]
    pub(super) fn diagnose(&self, errno: Errno, modification: &QueuePairModification) -> String {
        let context = self.protection_domain().context();
        match errno.0 {
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH if modification.has(M::IBV_QP_AV) => {
                return AddressHandleAttributes::from_raw(&modification.attributes().ah_attr).unreachable(context);
            }
            libc::EPERM | libc::EACCES if modification.has(M::IBV_QP_QKEY) => {
                let qkey = modification.attributes().qkey;
                return format!("a Q_Key whose highest bit is set, as that of {qkey:#x}, needs CAP_NET_RAW");
            }
            libc::EINVAL | libc::ENODATA | libc::ENOENT => {}
            _ => return String::new(),
        }
        let mut found = Vec::new();
        if let Ok(from) = self.state() {
            let to = modification.target().unwrap_or(from);
            let mask = modification.mask() & !M::IBV_QP_STATE.0;
            match transition::of(T::TYPE, from, to) {
                None | Some(Transition { required: 0, optional: 0 }) if modification.target().is_none() => {
                    return format!("the queue pair is in {from}, in which no attribute can be changed");
                }
                None => return format!("the queue pair is in {from}, from which there is no transition to {to}"),
                Some(transition) => {
                    let missing = transition.required & !mask;
                    let superfluous = mask & !(transition.required | transition.optional);
                    if missing != 0 {
                        found.push(format!("{} is missing", names(missing)));
                    }
                    if superfluous != 0 {
                        found.push(format!("{} does not belong to {from} to {to} of {}", names(superfluous), T::NAME));
                    }
                }
            }
        }
        self.check_port(modification, &mut found);
        self.check_limits(modification, &mut found);
        found.join("; ")
    }

    fn check_port(&self, modification: &QueuePairModification, found: &mut Vec<String>) {
        let context = self.protection_domain().context();
        let attributes = modification.attributes();
        let address = AddressHandleAttributes::from_raw(&attributes.ah_attr);
        let has_address = modification.has(M::IBV_QP_AV);
        let port_number = match has_address {
            true => address.port,
            false if modification.has(M::IBV_QP_PORT) => attributes.port_num,
            false => return,
        };
        let port = match context.port(port_number) {
            Ok(port) => port,
            Err(error) => return found.push(format!("port_num is {port_number}: {error}")),
        };
        if modification.has(M::IBV_QP_PKEY_INDEX) && attributes.pkey_index >= port.pkey_table_len() {
            let length = port.pkey_table_len();
            found.push(format!("pkey_index is {}, and the port has {length} P_Keys", attributes.pkey_index));
        }
        if has_address {
            found.extend(address.find_faults(context));
        }
    }

    fn check_limits(&self, modification: &QueuePairModification, found: &mut Vec<String>) {
        let Ok(device) = self.protection_domain().context().device_attributes() else { return };
        let attributes = modification.attributes();
        let limits = [
            (M::IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attributes.max_rd_atomic, device.max_qp_init_rd_atom()),
            (
                M::IBV_QP_MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                attributes.max_dest_rd_atomic,
                device.max_qp_rd_atom(),
            ),
        ];
        for (bit, name, value, limit) in limits {
            if modification.has(bit) && u32::from(value) > limit {
                found.push(format!("{name} is {value}, and the device takes at most {limit}"));
            }
        }
    }
}
