//! What cargo knows of the workspace.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The part of `cargo metadata` that matters here.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    /// Where cargo builds.
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// A package of the workspace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<Target>,
    pub(crate) metadata: Option<Metadata>,
    authors: Vec<String>,
    description: Option<String>,
    homepage: Option<String>,
    repository: Option<String>,
    license: Option<String>,
    license_file: Option<String>,
    rust_version: Option<String>,
    readme: Option<String>,
}

/// A crate of a package.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

/// `[package.metadata]`
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Metadata {
    /// How `cargo xtask run` starts the programs, by name.
    #[serde(default)]
    pub(crate) run: HashMap<String, crate::run::Recipe>,
}

/// The cargo that started us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    without_cargos_variables(&mut command);
    command
}

/// Variables that `cargo run` sets for us and that would mislead a program started from here.
fn is_cargos(name: &str) -> bool {
    let prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
    ["CARGO", "LD_LIBRARY_PATH", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&name)
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The environment that a program started here gets: ours, without what cargo put there for us.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| !name.to_str().is_some_and(is_cargos)).collect()
}

/// Takes those variables from a command's environment.
pub(crate) fn without_cargos_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_cargos) {
            command.env_remove(name);
        }
    }
}

impl Workspace {
    /// Asks cargo.
    ///
    /// # Errors
    ///
    /// There is no workspace here.
    pub(crate) fn find() -> Result<Self> {
        let output =
            cargo().args(["metadata", "--format-version", "1", "--no-deps"]).output().context("starting cargo")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let mut workspace: Self = serde_json::from_slice(&output.stdout).context("reading what cargo metadata says")?;
        std::fs::create_dir_all(&workspace.target)
            .with_context(|| format!("creating {}", workspace.target.display()))?;
        // The guest mounts it at the path that programs resolve it to.
        workspace.target = std::fs::canonicalize(&workspace.target)?;
        Ok(workspace)
    }

    /// A package by its name.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }
}

impl Package {
    /// Where the package is; its tests run there.
    pub(crate) fn root(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("/"))
    }

    /// The variables that cargo sets for a package's programs and tests.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (numbers, pre) = self.version.split_once('-').unwrap_or((&self.version, ""));
        let mut numbers = numbers.split('.').map(str::to_owned);
        let mut number = || numbers.next().unwrap_or_default();
        let pairs = [
            ("CARGO_PKG_VERSION", self.version.clone()),
            ("CARGO_PKG_VERSION_MAJOR", number()),
            ("CARGO_PKG_VERSION_MINOR", number()),
            ("CARGO_PKG_VERSION_PATCH", number()),
            ("CARGO_PKG_VERSION_PRE", pre.to_owned()),
            ("CARGO_PKG_NAME", self.name.clone()),
            ("CARGO_PKG_AUTHORS", self.authors.join(":")),
            ("CARGO_PKG_DESCRIPTION", text(&self.description)),
            ("CARGO_PKG_HOMEPAGE", text(&self.homepage)),
            ("CARGO_PKG_REPOSITORY", text(&self.repository)),
            ("CARGO_PKG_LICENSE", text(&self.license)),
            ("CARGO_PKG_LICENSE_FILE", text(&self.license_file)),
            ("CARGO_PKG_RUST_VERSION", text(&self.rust_version)),
            ("CARGO_PKG_README", text(&self.readme)),
            ("CARGO_MANIFEST_DIR", self.root().to_string_lossy().into_owned()),
            ("CARGO_MANIFEST_PATH", self.manifest_path.to_string_lossy().into_owned()),
        ];
        let mut variables: Vec<(OsString, OsString)> = pairs.map(|(name, value)| (name.into(), value.into())).into();
        if let Some(cargo) = std::env::var_os("CARGO") {
            variables.push(("CARGO".into(), cargo));
        }
        variables
    }
}

/// A line of cargo's `--message-format=json`.
#[derive(Debug, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub(crate) enum Message {
    CompilerArtifact {
        package_id: String,
        target: Target,
        #[serde(default)]
        executable: Option<PathBuf>,
    },
    BuildScriptExecuted {
        package_id: String,
        out_dir: PathBuf,
    },
    #[serde(other)]
    Other,
}

/// Runs a cargo command that builds, whose errors appear as cargo writes them, and returns its messages.
///
/// # Errors
///
/// The build fails.
pub(crate) fn build(arguments: &[String], root: &Path) -> Result<Vec<Message>> {
    let mut command = cargo();
    command.args(arguments);
    let text = format!("cargo {}", arguments.join(" "));
    crate::say!("$ {text}");
    command.arg("--message-format=json-render-diagnostics").current_dir(root).stderr(std::process::Stdio::inherit());
    let output = command.output().context("starting cargo")?;
    if !output.status.success() {
        bail!("the build failed; to repeat it: {text}");
    }
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
    lines.map(|line| serde_json::from_slice(line).context("reading what cargo says")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_variables_for_us_are_not_handed_on_but_the_users_are() {
        assert!(is_cargos("CARGO_PKG_NAME") && is_cargos("CARGO_MANIFEST_DIR") && is_cargos("CARGO"));
        assert!(!is_cargos("CARGO_HOME") && !is_cargos("CARGO_TARGET_DIR") && !is_cargos("PATH"));
    }

    #[test]
    fn a_packages_variables_are_those_that_cargo_sets() {
        let package =
            Package { version: "1.2.3-rc.1".into(), manifest_path: "/a/b/Cargo.toml".into(), ..Package::default() };
        let variables: HashMap<OsString, OsString> = package.variables().into_iter().collect();
        let get = |name: &str| variables.get(std::ffi::OsStr::new(name)).and_then(|value| value.to_str());
        assert_eq!(get("CARGO_PKG_VERSION_PATCH"), Some("3"));
        assert_eq!(get("CARGO_PKG_VERSION_PRE"), Some("rc.1"));
        assert_eq!(get("CARGO_MANIFEST_DIR"), Some("/a/b"));
    }
}
