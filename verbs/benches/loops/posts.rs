//! The loops of posts.c through the safe interface: posts alone, of requests that are built for each.
//!
//! Nobody polls: the null provider's plain data path then writes over the oldest completions, and refuses nothing.

use std::array;

use verbs::*;

use super::ours::{CHAIN, Objects};

/// The loops of an operation: one request at a time, and a chain.
macro_rules! posts {
    ($one:ident, $chain:ident, |$objects:ident, $wr_id:ident, $slices:ident = $slice:ident| $request:expr) => {
        pub(crate) fn $one($objects: &Objects, count: u64) -> Result<u64> {
            for $wr_id in 0..count {
                let $slices = &[$objects.$slice($wr_id)?];
                $objects.qp.post_send(&$request.signaled())?;
            }
            Ok(count)
        }

        pub(crate) fn $chain($objects: &Objects, count: u64) -> Result<u64> {
            for i in 0..count {
                let slices: [_; CHAIN] = array::from_fn(|k| [$objects.$slice(k as u64).unwrap()]);
                let mut requests: [_; CHAIN] = array::from_fn(|k| {
                    let ($wr_id, $slices) = (i + k as u64, &slices[k]);
                    $request.signaled()
                });
                $objects.qp.post_send_chain(&mut requests)?;
            }
            Ok(count)
        }
    };
}

posts!(send, send_chain, |objects, i, slices = part| SendRequest::send(i, slices));
posts!(inline_send, inline_send_chain, |objects, i, slices = inline| SendRequest::send_inline(i, slices));
posts!(write, write_chain, |objects, i, slices = part| SendRequest::rdma_write(i, slices, objects.remote));
posts!(inline_write, inline_write_chain, |objects, i, slices = inline| {
    SendRequest::rdma_write_inline(i, slices, objects.remote)
});
posts!(read, read_chain, |objects, i, slices = part| SendRequest::rdma_read(i, slices, objects.remote));
posts!(atomic, atomic_chain, |objects, i, slices = word| {
    SendRequest::compare_and_swap(i, slices, objects.remote, 0, 1)
});

pub(crate) fn receive(objects: &Objects, count: u64) -> Result<u64> {
    for i in 0..count {
        objects.qp.post_receive(&ReceiveRequest::new(i, &[objects.part(i)?]))?;
    }
    Ok(count)
}

pub(crate) fn receive_chain(objects: &Objects, count: u64) -> Result<u64> {
    for i in 0..count {
        let slices: [_; CHAIN] = array::from_fn(|k| [objects.part(k as u64).unwrap()]);
        let mut requests: [_; CHAIN] = array::from_fn(|k| ReceiveRequest::new(i + k as u64, &slices[k]));
        objects.qp.post_receive_chain(&mut requests)?;
    }
    Ok(count)
}
