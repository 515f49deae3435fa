//! What a shared library exports.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::process::Command;

/// The functions that a library exports under a version that begins with `version`. It is the file of the given name in `lib_dirs`,
/// which the crate was linked with, or where they are none the one that `function` is in.
pub(crate) fn exported(file: &str, lib_dirs: &str, function: *const c_void, version: &str) -> BTreeSet<String> {
    let linked = env::split_paths(lib_dirs).map(|dir| dir.join(file)).find(|path| path.exists());
    let library = linked.unwrap_or_else(|| library_of(function));
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions"])
        .arg(&library)
        .output()
        .expect("the tests need `nm`, which comes with the linker");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    let symbols = text.lines().filter_map(|line| line.rsplit(' ').next()?.split_once("@@"));
    let symbols: BTreeSet<String> =
        symbols.filter(|(_, of)| of.starts_with(version)).map(|(name, _)| name.to_owned()).collect();
    assert!(!symbols.is_empty(), "{library:?} exports nothing as {version}");
    symbols
}

fn library_of(function: *const c_void) -> PathBuf {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` where it answers other than 0, and its file name is a string that lives as long as the library.
    let path = unsafe {
        assert_ne!(libc::dladdr(function, info.as_mut_ptr()), 0);
        CStr::from_ptr(info.assume_init().dli_fname)
    };
    path.to_str().expect("the library's path is UTF-8").into()
}
