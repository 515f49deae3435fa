//! The archive format that the kernel unpacks as its first file system ("newc" cpio).

/// An archive being written.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

impl Archive {
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER | 0o755, (0, 0), &[]);
    }

    pub(crate) fn file(&mut self, name: &str, permissions: u32, content: &[u8]) {
        self.entry(name, REGULAR | permissions, (0, 0), content);
    }

    pub(crate) fn symlink(&mut self, name: &str, target: &str) {
        self.entry(name, SYMLINK | 0o777, (0, 0), target.as_bytes());
    }

    pub(crate) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.entry(name, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("a guest file below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a short name");
        // Magic; then inode, mode, uid, gid, links, time, size, device of the file, device it stands for, name's size, checksum.
        self.bytes.extend(b"070701");
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_reads_what_was_written() {
        let mut archive = Archive::default();
        archive.folder("folder");
        archive.file("folder/odd", 0o644, b"odd");
        archive.symlink("link", "folder/odd");
        archive.device("console", 5, 1);
        let folder = tempfile::tempdir().unwrap();
        let command = ["--extract", "--quiet", "--nonmatching", "console"];
        let mut cpio = Command::new("cpio").args(command).current_dir(&folder).stdin(Stdio::piped()).spawn().unwrap();
        cpio.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        assert!(cpio.wait().unwrap().success());
        // Through the link.
        assert_eq!(std::fs::read(folder.path().join("link")).unwrap(), b"odd");
    }
}
