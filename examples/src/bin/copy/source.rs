//! What is to be sent.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// One thing to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A folder, before what is in it.
    Folder { path: Vec<u8> },
    /// A file.
    File { from: PathBuf, path: Vec<u8>, size: u64 },
    /// A folder, after what is in it.
    Mode { path: Vec<u8>, mode: u32 },
    /// What is neither.
    Skipped { from: PathBuf, reason: &'static str },
}

/// All that there is at `source`, in an order that does not change from run to run. The name of `source` itself is the first of each path.
pub(crate) fn entries(source: &Path) -> Result<Vec<Entry>> {
    let what = || format!("cannot send {}", source.display());
    let metadata = fs::metadata(source).with_context(what)?;
    let name = match source.file_name() {
        Some(name) => name.to_owned(),
        None => fs::canonicalize(source)?.file_name().with_context(what).context("it has no name")?.to_owned(),
    };
    let mut all = Vec::new();
    if metadata.is_dir() {
        folder(source, name.as_bytes(), metadata.mode(), &mut all)?;
    } else if metadata.is_file() {
        all.push(Entry::File { from: source.into(), path: name.as_bytes().into(), size: metadata.len() });
    } else {
        bail!("{}: it is neither a file nor a folder", what());
    }
    Ok(all)
}

fn folder(from: &Path, path: &[u8], mode: u32, all: &mut Vec<Entry>) -> Result<()> {
    all.push(Entry::Folder { path: path.into() });
    let inside = || format!("cannot read the folder {}", from.display());
    let mut found = fs::read_dir(from).and_then(Iterator::collect::<Result<Vec<_>, _>>).with_context(inside)?;
    found.sort_by_key(fs::DirEntry::file_name);
    for entry in found {
        let from = entry.path();
        let metadata = entry.metadata().with_context(inside)?;
        let path = [path, b"/", entry.file_name().as_bytes()].concat();
        // The metadata is that of a symbolic link, not of what it leads to.
        if metadata.is_dir() {
            folder(&from, &path, metadata.mode(), all)?;
        } else if metadata.is_file() {
            all.push(Entry::File { from, path, size: metadata.len() });
        } else {
            let reason = if metadata.is_symlink() { "a symbolic link" } else { "neither a file nor a folder" };
            all.push(Entry::Skipped { from, reason });
        }
    }
    all.push(Entry::Mode { path: path.into(), mode });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_comes_before_its_contents_and_its_mode_after_them() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("b")).unwrap();
        fs::write(top.join("b/x"), b"12").unwrap();
        fs::write(top.join("a"), b"").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", top.join("c")).unwrap();
        let shown: Vec<String> = entries(&top)
            .unwrap()
            .into_iter()
            .map(|entry| match entry {
                Entry::Folder { path } => format!("folder {}", crate::path::shown(&path)),
                Entry::File { path, size, .. } => format!("file {} {size}", crate::path::shown(&path)),
                Entry::Mode { path, .. } => format!("mode {}", crate::path::shown(&path)),
                Entry::Skipped { reason, .. } => reason.to_owned(),
            })
            .collect();
        let expected =
            ["folder top", "file top/a 0", "folder top/b", "file top/b/x 2", "mode top/b", "a symbolic link"];
        assert_eq!(shown[..6], expected);
        assert_eq!(shown[6..], ["mode top"]);
        assert!(entries(&top.join("none")).unwrap_err().to_string().starts_with("cannot send "));
        assert!(entries(Path::new("/dev/null")).unwrap_err().to_string().contains("neither a file nor a folder"));
    }
}
