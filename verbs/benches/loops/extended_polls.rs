//! The loops of polls of an extended completion queue, which are in extended.c, through the safe interface.

use verbs::*;

use super::ours::Objects;

/// A request is built, posted and polled.
pub(crate) fn write(objects: &Objects, count: u64) -> Result<u64> {
    let (queue, mut done) = (objects.extended(), 0);
    for i in 0..count {
        let slices = &[objects.part(i)?];
        queue.post_send(&SendRequest::rdma_write(i, slices, objects.remote).signaled())?;
        if let Some(completion) = objects.extended_cq.poll()? {
            completion.success()?;
            done += 1;
        }
    }
    Ok(done)
}

/// A queue that is always full: the identifiers and the lengths are looked at.
pub(crate) fn poll_full<const N: usize>(objects: &Objects, count: u64) -> Result<u64> {
    let (mut done, mut sum) = (0, 0);
    let mut completions = [Default::default(); N];
    for _ in 0..count {
        for completion in objects.extended_cq.poll_into(&mut completions)? {
            let (byte_len,) = completion.success()?;
            sum += completion.wr_id() + u64::from(byte_len);
            done += 1;
        }
    }
    Ok(if sum == 0 { done } else { 0 })
}

pub(crate) fn poll_empty(objects: &Objects, count: u64) -> Result<u64> {
    let mut done = 0;
    for _ in 0..count {
        done += if objects.extended_cq.poll()?.is_none() { 1 } else { 2 };
    }
    Ok(done)
}
