//! Getting packages from Debian's and Ubuntu's archives without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::step;

/// The package that depends on the current kernel, on Debian.
pub(crate) const META_PACKAGE: &str = "linux-image-amd64";
/// The same on Ubuntu.
const UBUNTU_META_PACKAGE: &str = "linux-image-generic";

/// Suites that may have a package which the system's own lists lack.
pub(crate) fn other_suites(package: &str) -> &'static [&'static str] {
    if package.contains("-6.1.") { &["bookworm", "trixie"] } else { &["trixie", "bookworm"] }
}

/// apt, with the system's lists or with private ones.
#[derive(Debug)]
pub(crate) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// With the system's lists.
    ///
    /// # Errors
    ///
    /// There is no apt.
    pub(crate) fn system() -> Result<Self> {
        if !Path::new("/usr/bin/apt-get").exists() {
            bail!(
                "this host's own kernel cannot be used (no readable image and modules with rdma_rxe), and this is no system with apt \
                 to fetch one: install the distribution's kernel modules (Fedora: kernel-modules-extra), or give --kernel FOLDER with \
                 an unpacked kernel package"
            );
        }
        Ok(Self { options: Vec::new() })
    }

    /// With lists of `suite` that are kept under `folder`: the archive and its keys are those of the system's own sources.
    ///
    /// # Errors
    ///
    /// The system has no source of Debian packages, or the lists cannot be fetched.
    pub(crate) fn of_suite(folder: &Path, suite: &str) -> Result<Self> {
        Self::system()?;
        let source = debian_source(&sources(Path::new("/etc/apt")))
            .with_context(|| format!("apt has no source of Debian packages from which suite {suite} could be read"))?;
        let folder = folder.join(suite);
        for name in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(name)).with_context(|| format!("creating {}", folder.display()))?;
        }
        let list = folder.join("sources.list");
        let signed = source.signed_by.map(|key| format!("signed-by={key} ")).unwrap_or_default();
        super::fetch::write_whole(&list, format!("deb [{signed}arch=amd64] {} {suite} main\n", source.uri).as_bytes())?;
        let option = |name: &str, path: &Path| format!("--option={name}={}", path.display());
        let apt = Self {
            options: vec![
                option("Dir::Etc::SourceList", &list),
                "--option=Dir::Etc::SourceParts=-".into(),
                option("Dir::State::Lists", &folder.join("lists")),
                option("Dir::Cache", &folder.join("cache")),
                "--option=Acquire::Languages=none".into(),
            ],
        };
        if !apt.knows(META_PACKAGE) {
            step::run(apt.command("apt-get").args(["--quiet", "update"]))?;
        }
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // apt's own downloads go through a user who cannot write here.
        command.args(&self.options).arg("--option=APT::Sandbox::User=root");
        command
    }

    /// Whether there is such a package to download.
    pub(crate) fn knows(&self, package: &str) -> bool {
        let output = self.command("apt-cache").args(["show", "--no-all-versions", package]).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("\nFilename: "))
    }

    /// The kernel package that `meta` depends on.
    ///
    /// # Errors
    ///
    /// apt does not know it.
    pub(crate) fn kernel_of(&self, meta: &str) -> Result<String> {
        for meta in [meta, UBUNTU_META_PACKAGE] {
            let output = self
                .command("apt-cache")
                .args(["depends", "--important", meta])
                .output()
                .context("starting apt-cache")?;
            if let Some(name) = dependency(&String::from_utf8_lossy(&output.stdout)) {
                return if self.knows(&name) {
                    Ok(name)
                } else {
                    bail!("apt's lists are old: run `apt-get update` as root, then again")
                };
            }
        }
        bail!("apt does not know {meta}: run `apt-get update` as root, then again")
    }

    /// Downloads a package into `folder`; apt checks that it is what the signed lists promise.
    ///
    /// # Errors
    ///
    /// It cannot be downloaded.
    pub(crate) fn download(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        step::run(self.command("apt-get").args(["--quiet", "download", package]).current_dir(folder))?;
        let mut files = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        files
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .context("apt-get left no package")
    }
}

/// The first kernel that `apt-cache depends` names.
fn dependency(text: &str) -> Option<String> {
    let mut names = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

/// An archive and the keys that sign its lists.
#[derive(Debug, PartialEq, Eq)]
struct Source {
    uri: String,
    signed_by: Option<String>,
}

/// All that is in apt's source lists.
fn sources(etc: &Path) -> String {
    let mut files = vec![etc.join("sources.list")];
    if let Ok(entries) = fs::read_dir(etc.join("sources.list.d")) {
        files.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files[1..].sort();
    let wanted =
        |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "list" || extension == "sources");
    files.iter().filter(wanted).filter_map(|path| fs::read_to_string(path).ok()).collect::<Vec<_>>().join("\n\n")
}

/// The first archive of Debian's main packages in source lists of either form.
fn debian_source(text: &str) -> Option<Source> {
    let is_debian = |uri: &str| {
        let uri = uri.trim_end_matches('/');
        uri.ends_with("/debian")
    };
    for stanza in text.split("\n\n") {
        let mut uri = None;
        let mut signed_by = None;
        for line in stanza.lines().map(str::trim) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            match name.to_ascii_lowercase().as_str() {
                "uris" => uri = value.split_whitespace().find(|uri| is_debian(uri)).map(str::to_owned),
                "signed-by" if value.trim().starts_with('/') => signed_by = Some(value.trim().to_owned()),
                _ => {}
            }
            if let Some(rest) = line.strip_prefix("deb ") {
                let found = rest.split_whitespace().find(|word| is_debian(word));
                if let Some(found) = found {
                    let key = rest.split_once("signed-by=").and_then(|(_, rest)| rest.split([' ', ']', ',']).next());
                    return Some(Source { uri: found.to_owned(), signed_by: key.map(str::to_owned) });
                }
            }
        }
        if let Some(uri) = uri {
            return Some(Source { uri, signed_by });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_the_meta_packages_dependency() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n";
        assert_eq!(dependency(text).as_deref(), Some("linux-image-6.1.0-57-amd64"));
    }

    #[test]
    fn debians_archive_is_found_in_sources_of_either_form() {
        let stanzas = "Types: deb\nURIs: https://example.org/debian-security\nSuites: s\nSigned-By: /other.gpg\n\n\
                       Types: deb\nURIs: https://example.org/debian/\nSuites: s\nSigned-By: /keys.gpg\n";
        let expected = Source { uri: "https://example.org/debian/".into(), signed_by: Some("/keys.gpg".into()) };
        assert_eq!(debian_source(stanzas), Some(expected));
        let lines = "deb https://example.org/tool stable main\ndeb [signed-by=/keys.gpg] https://example.org/debian bookworm main\n";
        let expected = Source { uri: "https://example.org/debian".into(), signed_by: Some("/keys.gpg".into()) };
        assert_eq!(debian_source(lines), Some(expected));
        assert_eq!(debian_source("deb https://example.org/tool stable main\n"), None);
    }
}
