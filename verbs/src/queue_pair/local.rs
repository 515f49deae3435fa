//! The local end of what a queue pair sends and receives.

use std::hash::{BuildHasher, RandomState};

use crate::endpoint::{Endpoint, LocalEndpoint, MAX_24_BITS};
use crate::error::{Error, Result};
use crate::gid_table::{GidEntry, GidFilter};
use crate::port::PortAttributes;
use crate::queue_pair::QueuePair;
use crate::queue_pair::modify::VERB;
use crate::transport::Transport;

impl<T: Transport> QueuePair<T> {
    /// The local end of a connection through `port` (from 1): the queue pair's number, a random first PSN, the port's LID and
    /// MTU, and the GID that [`Context::choose_gid`](crate::Context::choose_gid) chooses with `filter`.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: there is no such port.
    /// * [`Error::InvalidArgument`]: no GID matches `filter`.
    pub fn local_endpoint(&self, port: u8, filter: &GidFilter) -> Result<LocalEndpoint> {
        let context = self.protection_domain().context();
        let attributes = context.port(port)?;
        let gid = match context.choose_gid(port, filter) {
            Ok(entry) => Some(entry),
            // Within a subnet of InfiniBand, the LID is enough.
            Err(_) if !attributes.requires_grh() && *filter == GidFilter::default() => None,
            Err(error) => return Err(error),
        };
        Ok(self.local_endpoint_of(port, attributes, gid))
    }

    /// The local end of a connection through `port` (from 1) with the GID at `gid_index` (from 0).
    ///
    /// # Errors
    ///
    /// * `EINVAL`: there is no such port, or its table is shorter.
    /// * [`Error::InvalidArgument`]: the entry is empty.
    pub fn local_endpoint_with_gid_index(&self, port: u8, gid_index: u32) -> Result<LocalEndpoint> {
        let context = self.protection_domain().context();
        let attributes = context.port(port)?;
        match context.gid(port, gid_index)? {
            Some(entry) => Ok(self.local_endpoint_of(port, attributes, Some(entry))),
            None => {
                let table = context.gid_table(port)?;
                let filled: Vec<String> =
                    table.iter().map(|entry| format!("{} ({})", entry.index, entry.gid)).collect();
                let filled = if filled.is_empty() { "none".to_owned() } else { filled.join(", ") };
                let rule = format!("the entry is empty; the entries of port {port} that hold an address: {filled}");
                Err(Error::invalid(VERB, "sgid_index", gid_index, rule))
            }
        }
    }

    fn local_endpoint_of(&self, port: u8, port_attributes: PortAttributes, gid: Option<GidEntry>) -> LocalEndpoint {
        // The standard library's hasher keys are random, and a first PSN needs no more than to differ from the last one.
        let psn = RandomState::new().hash_one(self.qp_num()) as u32 & MAX_24_BITS;
        let mut endpoint = Endpoint::new(self.qp_num(), psn);
        endpoint.lid = port_attributes.lid();
        endpoint.gid = gid.map(|entry| entry.gid);
        endpoint.mtu = Some(port_attributes.active_mtu());
        LocalEndpoint { endpoint, port, port_attributes, gid }
    }
}
