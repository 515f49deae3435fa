//! The loops of shared.c through the safe interface: receives posted to a shared receive queue.
//!
//! No message takes them: the null provider's plain data path writes over the oldest ones, and refuses nothing.

use std::array;

use verbs::*;

use super::ours::{CHAIN, Objects};

pub(crate) fn receive(objects: &Objects, count: u64) -> Result<u64> {
    for i in 0..count {
        objects.srq.post_receive(&ReceiveRequest::new(i, &[objects.part(i)?]))?;
    }
    Ok(count)
}

pub(crate) fn receive_chain(objects: &Objects, count: u64) -> Result<u64> {
    for i in 0..count {
        let slices: [_; CHAIN] = array::from_fn(|k| [objects.part(k as u64).unwrap()]);
        let mut requests: [_; CHAIN] = array::from_fn(|k| ReceiveRequest::new(i + k as u64, &slices[k]));
        objects.srq.post_receive_chain(&mut requests)?;
    }
    Ok(count * CHAIN as u64)
}
