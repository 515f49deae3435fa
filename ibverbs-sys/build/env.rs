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

/// Paths in the form of `PATH`.
pub(crate) fn joined(paths: &[PathBuf]) -> String {
    env::join_paths(paths).unwrap_or_default().to_string_lossy().into_owned()
}

/// The value of a variable of pkg-config, which may be set for one target only.
pub(crate) fn for_target(name: &str) -> Option<String> {
    let target = cargo("TARGET");
    let underscored = target.replace('-', "_");
    let kind = if target == cargo("HOST") { "HOST" } else { "TARGET" };
    let names =
        [format!("{name}_{target}"), format!("{name}_{underscored}"), format!("{kind}_{name}"), name.to_owned()];
    names.iter().find_map(|name| var(name))
}
