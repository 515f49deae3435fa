//! The guest's first file system: a static busybox, `/init`, the kernel's modules, and what this run wants.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::network::Network;

/// What `/init` uses of busybox.
const APPLETS: &[&str] = &[
    "mount", "mkdir", "insmod", "chroot", "poweroff", "sleep", "cat", "ln", "hostname", "uname", "echo", "sync", "sh",
];

/// Builds the archive.
///
/// # Errors
///
/// A file that goes in cannot be read.
pub(crate) fn build(busybox: &Path, kernel: &Kernel, network: &Network, agent: &Path) -> Result<Vec<u8>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let text =
        |path: &Path| path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()));
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "proc", "sys", "host", "memory", "root", "job", "modules"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.file("bin/busybox", 0o755, &read(busybox)?);
    for applet in APPLETS {
        archive.symlink(&format!("bin/{applet}"), "busybox");
    }
    archive.file("init", 0o755, include_bytes!("init.sh"));
    archive.file("bin/modprobe-in-root", 0o755, include_bytes!("modprobe.sh"));
    let mut order = String::new();
    for module in kernel.boot_modules()? {
        archive.file(&format!("modules/{}", module.name), 0o644, &read(&module.path)?);
        order.push_str(&module.name);
        order.push('\n');
    }
    archive.file("modules/order", 0o644, order.as_bytes());
    archive.file("job/agent", 0o644, text(agent)?.as_bytes());
    archive.file("job/modules", 0o644, text(&kernel.modules)?.as_bytes());
    archive.file("job/hostname", 0o644, network.hostname.as_bytes());
    archive.file("job/ip", 0o644, network.ip_batch().as_bytes());
    archive.file("job/rdma", 0o644, network.rdma_batch().as_bytes());
    Ok(archive.finish())
}
