//! What a program prints, read by a thread as it comes: a pipe that nobody reads has room for 64 KiB, and then the program stands still.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    is_over: bool,
}

/// All that came through a pipe so far.
#[derive(Clone, Debug)]
pub(crate) struct Pipe(Arc<(Mutex<State>, Condvar)>);

impl Pipe {
    /// Begins to read. `None`: nothing comes.
    pub(crate) fn read(pipe: Option<impl Read + Send + 'static>) -> Self {
        let state = State { bytes: Vec::new(), is_over: pipe.is_none() };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        if let Some(mut pipe) = pipe {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                loop {
                    let count = pipe.read(&mut buffer).unwrap_or(0);
                    let mut state = shared.0.lock().unwrap();
                    state.bytes.extend(&buffer[..count]);
                    state.is_over = count == 0;
                    shared.1.notify_all();
                    if state.is_over {
                        break;
                    }
                }
            });
        }
        Self(shared)
    }

    /// The text, once it is as it should be; `is_over` tells that no more comes. An error has what came in this time.
    pub(crate) fn wait_until(&self, limit: Duration, done: impl Fn(&str, bool) -> bool) -> Result<String, String> {
        let deadline = Instant::now() + limit;
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        loop {
            // Of what is not yet whole, the last character may be a part.
            let whole = match std::str::from_utf8(&state.bytes) {
                Ok(text) => text,
                Err(error) => std::str::from_utf8(&state.bytes[..error.valid_up_to()]).unwrap(),
            };
            if done(whole, state.is_over) {
                return Ok(whole.to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(whole.to_owned());
            }
            state = changed.wait_timeout(state, left).unwrap().0;
        }
    }
}
