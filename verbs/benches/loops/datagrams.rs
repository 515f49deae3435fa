//! The loops of datagrams.c through the safe interface.

use std::array;

use verbs::*;

use super::ours::{CHAIN, Objects, ROOM, poll_some};

pub(crate) const QKEY: u32 = 0x1111_1111;

pub(crate) fn datagram(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for i in 0..count {
        let slices = &[objects.part(i)?];
        objects.datagram.post_send(&SendRequest::send_to(i, slices, &objects.ah, 7, QKEY).signaled())?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

pub(crate) fn datagram_chain(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for i in 0..count {
        let slices: [_; CHAIN] = array::from_fn(|k| [objects.part(k as u64).unwrap()]);
        let mut requests: [_; CHAIN] =
            array::from_fn(|k| SendRequest::send_to(i + k as u64, &slices[k], &objects.ah, 7, QKEY).signaled());
        objects.datagram.post_send_chain(&mut requests)?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

/// The same request again and again, with the next identifier.
pub(crate) fn prepared_datagram(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    let slices = [objects.region.hold(..64)?];
    let mut request = PreparedSend::send_to(0, slices, &objects.ah, 7, QKEY).signaled();
    for i in 0..count {
        request.set_wr_id(i);
        objects.datagram.post_prepared_send(&request)?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}
