//! Paths with parts that differ from one distribution to the next.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The paths below `folder` that exist and match `pattern`, in order of their names.
pub(crate) fn matches(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let (name, rest) = match pattern.split_once('/') {
        Some((name, rest)) => (name, Some(rest)),
        None => (pattern, None),
    };
    let found: Vec<PathBuf> = if name.contains('*') {
        let mut names: Vec<OsString> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .filter(|entry| entry.to_str().is_some_and(|entry| fits(name, entry)))
            .collect();
        names.sort();
        names.into_iter().map(|name| folder.join(name)).collect()
    } else {
        vec![folder.join(name)]
    };
    match rest {
        Some(rest) => found.iter().flat_map(|path| matches(path, rest)).collect(),
        None => found.into_iter().filter(|path| path.exists()).collect(),
    }
}

/// Whether `name` fits `pattern`, in which `*` stands for any run of characters.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().map(|(at, _)| at).chain([tail.len()]).any(|at| fits(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::fake::Root;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (pattern, name, expected) in [
            ("lib", "lib", true),
            ("lib", "lib64", false),
            ("lib*", "lib", true),
            ("lib*", "lib64", true),
            ("*", "anything", true),
            ("librxe-rdmav*.so", "librxe-rdmav34.so", true),
            ("librxe-rdmav*.so", "librxe-rdmav34.so.1", false),
            ("*-linux-gnu*", "x86_64-linux-gnux32", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("é*", "é€", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn paths_match_in_the_order_of_their_names() {
        let root = Root::new();
        root.file("lib/b/x.so", "").file("lib/a/x.so", "").file("lib/c/y.so", "").file("lib/x.so", "");
        assert_eq!(matches(&root.path(""), "lib/*/x.so"), [root.path("lib/a/x.so"), root.path("lib/b/x.so")]);
        assert!(matches(&root.path(""), "nowhere/*/x.so").is_empty());
    }
}
