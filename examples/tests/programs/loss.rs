//! Services that lose messages: a busy machine does lose some.

use std::thread;
use std::time::{Duration, Instant};

use super::{Ended, LIMIT, Program};

/// How a program of ours names a loss.
const LOSS: &str = "got lost";

/// Runs a test up to three times: again only if it tells that something got lost.
#[track_caller]
pub(crate) fn unless_lost<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut losses = Vec::new();
    for _ in 0..3 {
        match attempt() {
            Ok(done) => return done,
            Err(loss) => losses.push(loss),
        }
        println!("again, since something got lost: {losses:#?}");
    }
    panic!("something got lost each time: {losses:#?}");
}

/// Waits until both ends have ended. An error is a loss: one of ours has named it, or a program of C's, which waits for ever, made no
/// progress.
#[track_caller]
pub(crate) fn ended_or_lost(mut server: Program, mut client: Program) -> Result<(Ended, Ended), String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let running = [server.is_running(), client.is_running()];
        for (program, _) in [&server, &client].into_iter().zip(running).filter(|(_, running)| !running) {
            let errors = program.errors();
            if errors.contains(LOSS) {
                return Err(errors);
            }
        }
        match running {
            [false, false] => return Ok((server.ended(), client.ended())),
            _ if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
        if Instant::now() >= deadline {
            let mut late = [&server, &client].into_iter().zip(running).filter(|(_, running)| *running);
            assert!(late.all(|(program, _)| program.is_of_c()), "still running: {server:?}\n{client:?}");
            return Err(format!("no progress in {LIMIT:?}: {server:?} {client:?}"));
        }
    }
}
