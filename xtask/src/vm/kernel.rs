//! The guest's kernel: an image that QEMU can start, and the modules that belong to it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The two lots in which the guest loads its modules: the second while the host's files are being mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Files,
    Devices,
}

impl Stage {
    /// What is loaded, in this order; what it depends on goes before it. What is built into the kernel is left out.
    fn wanted(self) -> &'static [&'static str] {
        match self {
            Self::Files => &["virtio_mmio", "virtio_console", "9pnet_virtio", "9p", "overlay"],
            // rxe computes its checksums through the kernel's generic table (`crc32_generic`), and no dependency says so.
            Self::Devices => &["veth", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad"],
        }
    }

    /// Where in the guest the list lies.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Files => "modules-first",
            Self::Devices => "modules-then",
        }
    }
}

/// A kernel on this host's disk.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` says it.
    pub(crate) release: String,
    /// Uncompressed where it could be uncompressed.
    pub(crate) image: PathBuf,
    /// The folder with `modules.dep`.
    pub(crate) modules: PathBuf,
}

/// A module's file and the name it has in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Kernel {
    /// The modules to load at boot, in order.
    ///
    /// # Errors
    ///
    /// `modules.dep` cannot be read, or lacks one of them.
    pub(crate) fn boot_modules(&self, stage: Stage) -> Result<Vec<Module>> {
        let read = |name: &str| {
            let path = self.modules.join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let paths = load_order(stage.wanted(), &read("modules.dep")?, &read("modules.builtin")?)
            .with_context(|| format!("kernel {}", self.release))?;
        Ok(paths
            .into_iter()
            .map(|path| Module {
                name: module_name(&path),
                path: self.modules.join(path),
            })
            .collect())
    }
}

/// Orders the modules `wanted` and what they need, by `modules.dep`.
fn load_order(wanted: &[&str], dependencies: &str, builtin: &str) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    let builtin: HashSet<String> = builtin.lines().map(module_name).collect();
    for &name in wanted {
        let line = dependencies.lines().find_map(|line| {
            let (path, needs) = line.split_once(':')?;
            (module_name(path) == name).then_some((path, needs))
        });
        match line {
            // Each line lists what to load from right to left.
            Some((path, needs)) => {
                for path in needs.split_whitespace().rev().chain([path]) {
                    if seen.insert(path.to_owned()) {
                        order.push(path.to_owned());
                    }
                }
            }
            None if builtin.contains(name) => {}
            None => bail!("module {name} is neither in modules.dep nor in modules.builtin"),
        }
    }
    Ok(order)
}

/// `kernel/net/9p/9p.ko.xz` is the module `9p`; dashes and underscores mean the same.
fn module_name(path: &str) -> String {
    let file = Path::new(path)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    file.split('.').next().unwrap_or_default().replace('-', "_")
}
