//! A vendor's options (ECE), exchanged on the short way, as librdmacm does for queue pairs that it makes.

use verbs::{EnhancedConnection, QueuePair, Rc};

use crate::error::Result;
use crate::id::Id;

/// Before asking: tells the peer what the device can do. Options that the program has [set](Id::set_local_ece) stay, where the device has
/// none.
pub(crate) fn offer(id: &Id, qp: &QueuePair<Rc>) -> Result<()> {
    match supported(qp.enhanced_connection())? {
        Some(own) if own.vendor_id != 0 => id.set_local_ece(&own),
        _ => Ok(()),
    }
}

/// Before accepting: sets what the peer can do, and tells it what came of it.
pub(crate) fn answer(id: &Id, qp: &QueuePair<Rc>) -> Result<()> {
    let (peer, own) = (id.remote_ece()?, supported(qp.enhanced_connection())?);
    let Some(chosen) = choose(own, peer) else { return Ok(()) };
    if supported(qp.set_enhanced_connection(&chosen))?.is_none() || chosen.options == 0 {
        return Ok(());
    }
    match supported(qp.enhanced_connection())? {
        Some(agreed) if agreed.vendor_id != 0 => id.set_local_ece(&agreed),
        _ => Ok(()),
    }
}

/// Once the peer has accepted: sets what both ends can do.
pub(crate) fn take(id: &Id, qp: &QueuePair<Rc>) -> Result<()> {
    let (agreed, own) = (id.remote_ece()?, supported(qp.enhanced_connection())?);
    match choose(own, agreed) {
        Some(chosen) => supported(qp.set_enhanced_connection(&chosen)).map(drop),
        None => Ok(()),
    }
}

/// What to set on the queue pair; `None`: one of the two ends has no options.
fn choose(own: Option<EnhancedConnection>, peer: EnhancedConnection) -> Option<EnhancedConnection> {
    match own {
        Some(own) if own.vendor_id != 0 && peer.vendor_id != 0 => {
            // That it is another vendor's, the device has to know; what its options mean, it does not.
            let options = if own.vendor_id == peer.vendor_id { peer.options } else { 0 };
            Some(EnhancedConnection::new(peer.vendor_id, options))
        }
        _ => None,
    }
}

/// `None`: the device has no such thing.
fn supported<T>(result: verbs::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(verbs::Error::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_same_vendor_are_set_and_another_vendors_are_only_named() {
        let none = EnhancedConnection::default();
        let (own, peer) = (EnhancedConnection::new(0x15b3, 7), EnhancedConnection::new(0x15b3, 3));
        assert_eq!(choose(Some(own), peer), Some(peer));
        assert_eq!(choose(Some(own), EnhancedConnection::new(0x14e4, 3)), Some(EnhancedConnection::new(0x14e4, 0)));
        for (own, peer) in [(None, peer), (Some(none), peer), (Some(own), none)] {
            assert_eq!(choose(own, peer), None);
        }
    }
}
