//! The loops of unreliable.c through the safe interface: what UC has.

use verbs::*;

use super::ours::{Objects, ROOM, poll_some};

pub(crate) fn send(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for i in 0..count {
        let slices = &[objects.part(i)?];
        objects.unreliable.post_send(&SendRequest::send(i, slices).signaled())?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}

pub(crate) fn write(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for i in 0..count {
        let slices = &[objects.part(i)?];
        objects.unreliable.post_send(&SendRequest::rdma_write(i, slices, objects.remote).signaled())?;
        poll_some(&objects.cq, &mut room, &mut done)?;
    }
    Ok(done)
}
