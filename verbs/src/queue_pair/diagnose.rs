//! Why `ibv_modify_qp` failed: the kernel says only "Invalid argument".
//!
//! # Safety
//!
//! Only attributes that are all initialised are read.
#![allow(unsafe_code)]

use std::fmt::Write;

use crate::ffi;
use crate::ffi::ibv_qp_attr_mask as M;
use crate::gid::Gid;
use crate::port::Mtu;
use crate::queue_pair::transition::{names, reliable_connection};
use crate::queue_pair::{QueuePair, QueuePairState};
use crate::returns::Errno;
use crate::transport::Transport;

impl<T: Transport> QueuePair<T> {
    /// What is wrong with a transition that failed, as far as it can be found out; empty if it cannot.
    #[cold]
    pub(super) fn diagnose(
        &self,
        errno: Errno,
        to: QueuePairState,
        attributes: &ffi::ibv_qp_attr,
        mask: u32,
    ) -> String {
        let has = |bit: M| mask & bit.0 != 0;
        let mut found = Vec::new();
        match errno.0 {
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH if has(M::IBV_QP_AV) => {
                return self.unreachable(attributes);
            }
            libc::EINVAL | libc::ENODATA | libc::ENOENT => {}
            _ => return String::new(),
        }
        if let Ok(from) = self.state() {
            match reliable_connection(from, to) {
                None => return format!("the queue pair is in {from}, from which there is no transition to {to}"),
                Some(transition) => {
                    let missing = transition.required & !mask;
                    let superfluous = mask & !(transition.required | transition.optional);
                    if missing != 0 {
                        found.push(format!("{} is missing", names(missing)));
                    }
                    if superfluous != 0 {
                        found.push(format!("{} does not belong to {from} to {to}", names(superfluous)));
                    }
                }
            }
        }
        self.check_port(attributes, mask, &mut found);
        self.check_limits(attributes, mask, &mut found);
        found.join("; ")
    }

    fn unreachable(&self, attributes: &ffi::ibv_qp_attr) -> String {
        let address = &attributes.ah_attr;
        // SAFETY: each member of the union is 16 bytes of integers.
        let remote = Gid::from_bytes(unsafe { address.grh.dgid.raw });
        let index = address.grh.sgid_index;
        let mut text = format!("nobody answers at the remote GID {remote} on the network of local GID index {index}");
        if let Ok(Some(entry)) = self.protection_domain().context().gid(address.port_num, index.into()) {
            let _ = write!(text, " ({})", entry.gid);
        }
        text
    }

    fn check_port(&self, attributes: &ffi::ibv_qp_attr, mask: u32, found: &mut Vec<String>) {
        let context = self.protection_domain().context();
        let has_address = mask & M::IBV_QP_AV.0 != 0;
        let port_number = match has_address {
            true => attributes.ah_attr.port_num,
            false if mask & M::IBV_QP_PORT.0 != 0 => attributes.port_num,
            false => return,
        };
        let port = match context.port(port_number) {
            Ok(port) => port,
            Err(error) => return found.push(format!("port_num is {port_number}: {error}")),
        };
        if mask & M::IBV_QP_PKEY_INDEX.0 != 0 && attributes.pkey_index >= port.pkey_table_len() {
            let length = port.pkey_table_len();
            found.push(format!("pkey_index is {}, and the port has {length} P_Keys", attributes.pkey_index));
        }
        if !has_address {
            return;
        }
        let address = &attributes.ah_attr;
        if address.is_global == 0 {
            if port.requires_grh() {
                found.push("the link layer is Ethernet (RoCE), which needs GIDs".to_owned());
            }
            return;
        }
        let index = u32::from(address.grh.sgid_index);
        match context.gid(port_number, index) {
            Ok(None) => {
                let filled = context.gid_table(port_number).map_or(0, |table| table.len());
                found.push(format!("GID index {index} is empty; the table has {filled} entries that are not"));
            }
            Err(error) => found.push(error.to_string()),
            Ok(Some(_)) => {}
        }
        // SAFETY: each member of the union is 16 bytes of integers.
        if Gid::from_bytes(unsafe { address.grh.dgid.raw }).is_unspecified() {
            found.push("the remote GID is all zeroes".to_owned());
        }
        let mtu = Mtu::from_raw(attributes.path_mtu.0);
        if mask & M::IBV_QP_PATH_MTU.0 != 0 && mtu > port.active_mtu() {
            found.push(format!("path_mtu is {mtu}, and the port's active MTU is {}", port.active_mtu()));
        }
    }

    fn check_limits(&self, attributes: &ffi::ibv_qp_attr, mask: u32, found: &mut Vec<String>) {
        let Ok(device) = self.protection_domain().context().device_attributes() else { return };
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
            if mask & bit.0 != 0 && u32::from(value) > limit {
                found.push(format!("{name} is {value}, and the device takes at most {limit}"));
            }
        }
    }
}
