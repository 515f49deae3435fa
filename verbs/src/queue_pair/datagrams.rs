//! How long a message of UD may be.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};

use crate::context::Context;
use crate::error::Result;

/// What is known of the port that the datagrams of a queue pair go through.
pub(super) struct Datagrams {
    max_bytes: AtomicU32,
    /// 0: it has none yet.
    port: AtomicU8,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self { max_bytes: AtomicU32::new(u32::MAX), port: AtomicU8::new(0) }
    }
}

impl Datagrams {
    /// A port, and how many bytes a message through it has at most.
    pub(super) fn through(context: &Context, port: u8) -> Result<(u8, u32)> {
        // An MTU that this crate does not know is no limit.
        Ok((port, context.port(port)?.active_mtu().bytes().unwrap_or(u32::MAX)))
    }

    /// How many bytes a message has at most.
    #[inline]
    pub(super) fn max_bytes(&self) -> u32 {
        self.max_bytes.load(Relaxed)
    }

    pub(super) fn port(&self) -> Option<u8> {
        Some(self.port.load(Relaxed)).filter(|port| *port != 0)
    }

    pub(super) fn set(&self, (port, max_bytes): (u8, u32)) {
        self.port.store(port, Relaxed);
        self.max_bytes.store(max_bytes, Relaxed);
    }
}
