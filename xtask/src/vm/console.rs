//! The kernel's console: kept, and shown when the machine ends badly.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::place::News;

/// Lines that are kept.
const KEPT: usize = 200;
/// Lines that are shown.
const SHOWN: usize = 40;

/// What the kernel and `/init` said last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Console(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    whole: VecDeque<String>,
    partial: Vec<u8>,
    panic: Option<String>,
    ended: bool,
}

impl Console {
    /// Keeps what comes, and tells of the first sign of life.
    pub(crate) fn follow(&self, mut stream: UnixStream, tell: Sender<News>) {
        let console = self.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            let mut alive = false;
            loop {
                match stream.read(&mut buffer) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => {
                        console.lines().ended = true;
                        return;
                    }
                    Ok(length) => console.add(&buffer[..length]),
                }
                if !alive {
                    alive = true;
                    // Whoever waited may have given up.
                    let _ = tell.send(News::Alive);
                }
            }
        });
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) {
        let mut lines = self.lines();
        for &byte in bytes {
            if byte != b'\n' {
                lines.partial.push(byte);
                continue;
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut lines.partial)).trim_end().to_owned();
            if let Some((_, reason)) = line.split_once("Kernel panic - not syncing: ") {
                lines.panic.get_or_insert(reason.to_owned());
            }
            lines.whole.push_back(line);
            if lines.whole.len() > KEPT {
                lines.whole.pop_front();
            }
        }
    }

    /// Whether all has come that will ever come.
    pub(crate) fn has_ended(&self) -> bool {
        self.lines().ended
    }

    /// What the kernel panicked of.
    pub(crate) fn panic(&self) -> Option<String> {
        self.lines().panic.clone()
    }

    /// The last lines, ready to be shown.
    pub(crate) fn tail(&self) -> String {
        let lines = self.lines();
        let partial = String::from_utf8_lossy(&lines.partial);
        let skip = lines.whole.len().saturating_sub(SHOWN);
        let shown = lines.whole.iter().skip(skip).map(String::as_str).chain([&*partial]);
        shown.filter(|line| !line.is_empty()).map(|line| format!("  console| {line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_recognised_with_its_reason_though_it_comes_in_pieces() {
        let console = Console::default();
        console.add(b"[ 1.0] fine\r\n[ 2.0] Kernel panic - not sync");
        assert_eq!(console.panic(), None);
        console.add(b"ing: sysrq triggered crash\r\n");
        assert_eq!(console.panic().as_deref(), Some("sysrq triggered crash"));
        assert!(console.tail().starts_with("  console| [ 1.0] fine\n"));
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        let console = Console::default();
        for number in 0..1000 {
            console.add(format!("line {number}\n").as_bytes());
        }
        assert!(console.tail().ends_with("line 999\n"));
        assert_eq!(console.tail().lines().count(), SHOWN);
    }
}
