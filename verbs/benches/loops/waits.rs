//! The loop of waits.c through the safe interface.

use verbs::*;

use super::ours::{Objects, ROOM};

pub(crate) fn wait(objects: &Objects, count: u64) -> Result<u64> {
    let mut room = [WorkCompletion::default(); ROOM];
    let mut done = 0;
    for _ in 0..count {
        for completion in objects.cq.wait(&mut room, None)? {
            completion.success()?;
            done += 1;
        }
    }
    Ok(done)
}
