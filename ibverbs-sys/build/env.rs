//! The one place that reads the environment, so that cargo knows what to watch.

use std::env;
use std::path::PathBuf;

/// The value of `name` if it is set and not empty. Cargo runs the script again when it changes.
pub(crate) fn var(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// A variable that cargo sets for every build script.
pub(crate) fn cargo(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}

/// Where the build may write.
pub(crate) fn out_dir() -> PathBuf {
    PathBuf::from(cargo("OUT_DIR"))
}

/// The paths in a variable that separates them as `PATH` does.
pub(crate) fn paths(name: &str) -> Vec<PathBuf> {
    var(name).map(|value| env::split_paths(&value).collect()).unwrap_or_default()
}
