//! The guest's first file system: a static busybox, `/init`, the kernel's modules, and what this run wants.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::cpio::Archive;
use super::kernel::{Kernel, Stage};
use super::network::Network;

/// What `/init` uses of busybox.
const APPLETS: &[&str] = &["mount", "mkdir", "modprobe", "chroot", "poweroff", "sleep", "cat", "ln", "sync"];

/// Builds the archive.
///
/// # Errors
///
/// A file that goes in cannot be read.
pub(crate) fn build(busybox: &Path, kernel: &Kernel, network: &Network, agent: &Path) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let text =
        |path: &Path| path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()));
    let folder = format!("lib/modules/{}", kernel.release);
    let mut archive = Archive::default();
    for name in ["bin", "dev", "proc", "sys", "host", "memory", "root", "job", "lib", "lib/modules", &folder] {
        archive.folder(name);
    }
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.file("bin/busybox", 0o755, &read(busybox)?);
    for applet in APPLETS {
        archive.symlink(&format!("bin/{applet}"), "busybox");
    }
    archive.file("init", 0o755, include_bytes!("init.sh"));
    archive.file("bin/modprobe-in-root", 0o755, include_bytes!("modprobe.sh"));
    // One program loads a whole list of modules: under emulation each start of a program costs some 30 ms.
    let mut dependencies = String::new();
    for stage in [Stage::Files, Stage::Devices] {
        let modules = kernel.boot_modules(stage)?;
        let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
        archive.file(&format!("job/{}", stage.name()), 0o644, names.join(" ").as_bytes());
        for module in &modules {
            let file = module.path.file_name().and_then(|name| name.to_str()).context("a module without a name")?;
            archive.file(&format!("{folder}/{file}"), 0o644, &read(&module.path)?);
            // In load order, so nothing has to be said of what depends on what.
            dependencies.push_str(&format!("{file}:\n"));
        }
    }
    archive.file(&format!("{folder}/modules.dep"), 0o644, dependencies.as_bytes());
    archive.file("job/release", 0o644, kernel.release.as_bytes());
    archive.file("job/agent", 0o644, text(agent)?.as_bytes());
    archive.file("job/modules", 0o644, text(&kernel.modules)?.as_bytes());
    archive.file("job/hostname", 0o644, network.hostname.as_bytes());
    archive.file("job/ip", 0o644, network.ip_batch().as_bytes());
    archive.file("job/rdma", 0o644, network.rdma_batch().as_bytes());
    Ok(archive.finish())
}
