//! What the tests of `copy` copy, and where to.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::programs::{LIMIT, Program, setting};

/// The program.
pub(crate) const COPY: &str = env!("CARGO_BIN_EXE_copy");

/// Two folders, `here` and `there`.
pub(crate) struct Folders(pub(crate) TempDir);

impl Folders {
    pub(crate) fn new() -> Self {
        let folders = Self(tempfile::tempdir().unwrap());
        fs::create_dir(folders.here("")).unwrap();
        fs::create_dir(folders.there("")).unwrap();
        folders
    }

    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.0.path().join("here").join(name)
    }

    pub(crate) fn there(&self, name: &str) -> PathBuf {
        self.0.path().join("there").join(name)
    }

    pub(crate) fn receiver(&self) -> (Program, String) {
        self.receiver_at(&format!("{}:0", setting("RDMA_TEST_ADDRESS")))
    }

    pub(crate) fn receiver_at(&self, at: &str) -> (Program, String) {
        let mut receiver = Program::start(COPY, &["--listen", at, text(&self.there(""))]);
        let address = receiver.address();
        (receiver, address)
    }

    /// Copies, and returns what the sender and the receiver print.
    pub(crate) fn copy(&self, name: &str, options: &[&str]) -> (String, String) {
        let (receiver, address) = self.receiver();
        let source = self.here(name);
        let mut arguments = vec![text(&source), &address];
        arguments.extend(options);
        let sender = Program::start(COPY, &arguments).ended();
        let receiver = receiver.ended();
        assert!(sender.status.success() && receiver.status.success(), "{sender:?}\n{receiver:?}");
        (sender.stdout, receiver.stdout)
    }

    /// The names in the folder `there`.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.there(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes that are not the same at any two places.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length.div_ceil(4) as u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_le_bytes()).take(length).collect()
}

/// A sparse file of which no machine copies all meanwhile, and a copy of it that is under way.
pub(crate) fn half_way(folders: &Folders) -> (Program, Program) {
    let (receiver, address) = folders.receiver();
    let sender = send_for_ever(folders, &address);
    (receiver, sender)
}

pub(crate) fn send_for_ever(folders: &Folders, address: &str) -> Program {
    let file = fs::File::create(folders.here("large")).unwrap();
    file.set_len(1 << 40).unwrap();
    (&file).write_all(&bytes(1 << 18)).unwrap();
    let sender = Program::start(COPY, &[text(&folders.here("large")), address, "--chunk", "65536"]);
    let deadline = Instant::now() + LIMIT;
    while fs::metadata(folders.there(".large.partial")).map_or(0, |metadata| metadata.len()) < 1 << 20 {
        assert!(Instant::now() < deadline, "nothing arrives");
        thread::sleep(Duration::from_millis(5));
    }
    sender
}
