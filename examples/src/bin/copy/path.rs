//! Paths from the peer, which may be anything.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, bail};

/// The names in a path, from the destination on: at least one, and each that of a file or folder in the one before.
pub(crate) fn names(path: &[u8]) -> Result<Vec<&OsStr>> {
    if path.len() > 4096 {
        bail!("the sender names a path of {} bytes; one has at most 4096", path.len());
    }
    path.split(|byte| *byte == b'/')
        .map(|name| match name {
            b"" | b"." | b".." => refuse(path),
            name if name.contains(&0) => refuse(path),
            name => Ok(OsStr::from_bytes(name)),
        })
        .collect()
}

fn refuse<T>(path: &[u8]) -> Result<T> {
    bail!("the sender names {:?}, which might be outside of the destination", String::from_utf8_lossy(path))
}

/// A path for the user's eyes.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_below_the_destination_are_names() {
        assert_eq!(names(b"a/..b/c d/\xff").unwrap().len(), 4);
        for path in
            ["", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "a//b", "a/", "./a", "a/./b", "a\0b", "//x"]
        {
            let error = names(path.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("might be outside of the destination"), "{path:?}: {error}");
        }
        assert!(names(&[b'a'; 4097]).is_err());
    }
}
