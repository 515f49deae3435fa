//! The loops of prepared.c through the safe interface: posts of requests that are built before the loop. For each post the identifiers
//! and the ranges change.

use std::array;

use verbs::*;

use super::ours::{CHAIN, Objects, PART, WORD, range};

/// The loops of an operation, through one of the interfaces of a queue pair: one request at a time, and a chain. What it is on has
/// `$length` bytes.
macro_rules! prepared {
    (
        $queue:ident.$post:ident, $post_chain:ident,
        $one:ident, $chain:ident, $length:expr, |$objects:ident, $slices:ident| $request:expr
    ) => {
        pub(crate) fn $one($objects: &Objects, count: u64) -> Result<u64> {
            let queue = $objects.$queue();
            let $slices = [$objects.region.hold(range(0, $length))?];
            let mut request = $request;
            for i in 0..count {
                request.set_wr_id(i);
                request.set_range(0, range(i, $length))?;
                queue.$post(&request)?;
            }
            Ok(count)
        }

        pub(crate) fn $chain($objects: &Objects, count: u64) -> Result<u64> {
            let queue = $objects.$queue();
            let mut requests: [_; CHAIN] = array::from_fn(|_| {
                let $slices = [$objects.region.hold(range(0, $length)).unwrap()];
                $request
            });
            for i in 0..count {
                for (k, request) in (i..).zip(&mut requests) {
                    request.set_wr_id(k);
                    request.set_range(0, range(k, $length))?;
                }
                queue.$post_chain(&mut requests)?;
            }
            Ok(count)
        }
    };
}

/// The loops of all operations of a send queue.
macro_rules! operations {
    ($queue:ident) => {
        prepared!($queue.post_prepared_send, post_send_chain, send, send_chain, PART, |objects, slices| {
            PreparedSend::send(0, slices).signaled()
        });
        prepared!($queue.post_prepared_send, post_send_chain, write, write_chain, PART, |objects, slices| {
            PreparedSend::rdma_write(0, slices, objects.remote).signaled()
        });
        prepared!($queue.post_prepared_send, post_send_chain, read, read_chain, PART, |objects, slices| {
            PreparedSend::rdma_read(0, slices, objects.remote).signaled()
        });
        prepared!($queue.post_prepared_send, post_send_chain, atomic, atomic_chain, WORD, |objects, slices| {
            PreparedAtomic::compare_and_swap(0, slices, objects.remote, 0, 1).unwrap().signaled()
        });
    };
}

operations!(plain);

prepared!(plain.post_prepared_receive, post_receive_chain, receive, receive_chain, PART, |objects, slices| {
    PreparedReceive::new(0, slices)
});

/// The same through `ibv_qp_ex`; the C is in extended.c.
pub(crate) mod extended {
    use super::*;

    operations!(extended);
}
