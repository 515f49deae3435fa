//! What the ends say to each other. Each request, and each chunk, has one reply, in the same order.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// From the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// How much comes, and how many things do not, since they are neither files nor folders.
    Start { files: u64, bytes: u64, skipped: u64 },
    /// A folder.
    Folder { path: Vec<u8> },
    /// The permissions of a folder whose contents have been sent.
    FolderMode { path: Vec<u8>, mode: u32 },
    /// A file: what is there of it? The reply is [`Reply::Have`].
    File { path: Vec<u8>, size: u64 },
    /// Its chunks follow, from here on.
    From { offset: u64 },
    /// That was all of the file.
    End { length: u64, digest: Digest, mode: u32 },
    /// That was all.
    Finish,
    /// The sender gives up.
    Failed { reason: String },
}

/// From the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// It is done, and the slot is free.
    Done,
    /// So much of the file is there, with this checksum.
    Have { length: u64, digest: Digest },
    /// The receiver gives up.
    Failed { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::Shape;

    #[test]
    fn the_longest_path_and_reason_fit_into_their_slots() {
        let longest = Request::File { path: vec![255; 4096], size: u64::MAX };
        assert!(serde_json::to_vec(&longest).unwrap().len() <= 64 << 10);
        Shape { chunk: 64 << 10, slots: 1 }.check().unwrap();
        let reason = crate::to_peer(&anyhow::anyhow!("{}", "\u{1}é".repeat(1000)));
        assert!(serde_json::to_vec(&Reply::Failed { reason }).unwrap().len() <= crate::link::REPLY_SLOT);
    }
}
