//! The loops of posts.c through the safe interface: posts alone, of requests that are built for each.
//!
//! Nobody polls: the null provider's plain data path then writes over the oldest completions, and refuses nothing.

use std::array;

use verbs::*;

use super::ours::{CHAIN, Objects};

/// The loops of an operation through one of the interfaces of a queue pair: one request at a time, and a chain.
macro_rules! posts {
    ($queue:ident, $one:ident, $chain:ident, |$objects:ident, $wr_id:ident, $slices:ident = $slice:ident| $request:expr) => {
        pub(crate) fn $one($objects: &Objects, count: u64) -> Result<u64> {
            let queue = $objects.$queue();
            for $wr_id in 0..count {
                let $slices = &[$objects.$slice($wr_id)?];
                queue.post_send(&$request.signaled())?;
            }
            Ok(count)
        }

        pub(crate) fn $chain($objects: &Objects, count: u64) -> Result<u64> {
            let queue = $objects.$queue();
            for i in 0..count {
                let slices: [_; CHAIN] = array::from_fn(|k| [$objects.$slice(k as u64).unwrap()]);
                let mut requests: [_; CHAIN] = array::from_fn(|k| {
                    let ($wr_id, $slices) = (i + k as u64, &slices[k]);
                    $request.signaled()
                });
                queue.post_send_chain(&mut requests)?;
            }
            Ok(count)
        }
    };
}

/// The loops of all operations.
macro_rules! operations {
    ($queue:ident) => {
        posts!($queue, send, send_chain, |objects, i, slices = part| SendRequest::send(i, slices));
        posts!($queue, inline_send, inline_send_chain, |objects, i, slices = inline| SendRequest::send_inline(i, slices));
        posts!($queue, write, write_chain, |objects, i, slices = part| SendRequest::rdma_write(i, slices, objects.remote));
        posts!($queue, inline_write, inline_write_chain, |objects, i, slices = inline| {
            SendRequest::rdma_write_inline(i, slices, objects.remote)
        });
        posts!($queue, read, read_chain, |objects, i, slices = part| SendRequest::rdma_read(i, slices, objects.remote));
        posts!($queue, atomic, atomic_chain, |objects, i, slices = word| {
            SendRequest::compare_and_swap(i, slices, objects.remote, 0, 1)
        });
    };
}

operations!(plain);

/// The same through `ibv_qp_ex`; the C is in extended.c.
pub(crate) mod extended {
    use super::*;

    operations!(extended);
}

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
