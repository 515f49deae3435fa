//! `test --sanitize`: the tests with AddressSanitizer, which sees each access to memory that is freed, not there, or somebody else's.
//!
//! The compiler takes the flag only where features that are not stable yet are allowed, so that they are, for this build. What is built so
//! lies in a folder of its own, as nothing of it can be used elsewhere.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Tests that start a tool which cannot run such programs, valgrind, or use what was built, the compiler.
pub(super) const UNFIT: [&str; 3] = [
    "touch_no_freed_memory",
    "a_transport_has_its_operations_and_no_others",
    "what_the_documentation_says_does_not_compile",
];

/// What to tell cargo. (With a `--target`, the flags are not for build scripts and macros, which the compiler itself loads.)
///
/// # Errors
///
/// `RUSTFLAGS` is set, so that cargo would not take others; the compiler does not say what it builds for.
pub(super) fn arguments(target: &Path) -> Result<Vec<String>> {
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        if std::env::var_os(name).is_some() {
            bail!("--sanitize needs flags of its own for the compiler: unset {name}");
        }
    }
    let output = Command::new("rustc").arg("-vV").output().context("starting rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = host(&text).with_context(|| format!("rustc -vV names no host: {text}"))?;
    Ok([
        "--target",
        host,
        "--target-dir",
        &target.join("sanitize").to_string_lossy(),
        "--config",
        r#"build.rustflags=["-Zsanitizer=address"]"#,
        "--config",
        r#"env.RUSTC_BOOTSTRAP="1""#,
    ]
    .map(str::to_owned)
    .into())
}

fn host(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("host: "))
}

/// The variables of a test: tests forget objects on purpose, which is not to be told of.
pub(super) fn variables() -> Option<(OsString, OsString)> {
    const NAME: &str = "ASAN_OPTIONS";
    std::env::var_os(NAME).is_none().then(|| (NAME.into(), "detect_leaks=0".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_rustc_says_it_is() {
        let version = "rustc 1.85.0\nbinary: rustc\nhost: aarch64-unknown-linux-gnu\nrelease: 1.85.0\n";
        assert_eq!(host(version), Some("aarch64-unknown-linux-gnu"));
        assert_eq!(host("rustc 1.85.0"), None);
    }
}
