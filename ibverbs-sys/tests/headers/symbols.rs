//! What a shared library exports.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::process::Command;

/// The functions that the library of `function` exports under a version that begins with `version`.
pub(crate) fn exported_beside(function: *const c_void, version: &str) -> BTreeSet<String> {
    let library = library_of(function);
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--with-symbol-versions", &library])
        .output()
        .expect("the tests need `nm`, which comes with the linker");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("symbols are ASCII");
    let symbols = text.lines().filter_map(|line| line.rsplit(' ').next()?.split_once("@@"));
    let symbols: BTreeSet<String> =
        symbols.filter(|(_, of)| of.starts_with(version)).map(|(name, _)| name.to_owned()).collect();
    assert!(!symbols.is_empty(), "{library} exports nothing as {version}");
    symbols
}

fn library_of(function: *const c_void) -> String {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills `info` where it answers other than 0, and its file name is a string that lives as long as the library.
    let path = unsafe {
        assert_ne!(libc::dladdr(function, info.as_mut_ptr()), 0);
        CStr::from_ptr(info.assume_init().dli_fname)
    };
    path.to_str().expect("the library's path is UTF-8").to_owned()
}
