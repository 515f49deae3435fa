//! The guest's kernel: an image that QEMU can start, and the modules that belong to it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::image;

/// Changes with what [`Kernel::prepare`] makes, so that nothing older is taken for it.
const LAYOUT: &str = "2";

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

    /// The name of the lot's list in the guest, and of its folder on the host.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Files => "modules-first",
            Self::Devices => "modules-then",
        }
    }
}

/// A kernel that is ready to boot: a folder with its image and the modules of the boot, all uncompressed.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` says it.
    pub(crate) release: String,
    /// What QEMU starts.
    pub(crate) image: PathBuf,
    /// The folder with `modules.dep` and all modules.
    pub(crate) modules: PathBuf,
    folder: PathBuf,
}

/// A module that the guest loads at boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl Kernel {
    /// Opens what [`prepare`](Self::prepare) made.
    ///
    /// # Errors
    ///
    /// There is nothing, or the modules it was made from are gone.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        if read("layout")? != LAYOUT {
            bail!("{} was made by another version of xtask", folder.display());
        }
        // A relative path is one inside of the folder.
        let modules = folder.join(read("modules-path")?);
        if !modules.join("modules.dep").is_file() {
            bail!("{} is gone", modules.display());
        }
        Ok(Self { release: read("release")?, image: folder.join("vmlinux"), modules, folder: folder.to_owned() })
    }

    /// Makes `folder` (which must not exist) from a distribution's image and modules, so that it is there whole or not at all.
    ///
    /// # Errors
    ///
    /// A module is missing, a file cannot be read or written, or the image is of an unknown kind.
    pub(crate) fn prepare(
        folder: &Path,
        release: &str,
        image: &Path,
        modules: &Path,
        keep_modules: bool,
    ) -> Result<Self> {
        let parent = folder.parent().context("a folder in a folder")?;
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        let work = tempfile::Builder::new().prefix("preparing-").tempdir_in(parent);
        let work = work.with_context(|| format!("making a folder in {}", parent.display()))?;
        let write = |name: &str, content: &[u8]| {
            let path = work.path().join(name);
            fs::write(&path, content).with_context(|| format!("writing {}", path.display()))
        };
        write("layout", LAYOUT.as_bytes())?;
        write("release", release.as_bytes())?;
        for stage in [Stage::Files, Stage::Devices] {
            let dependencies = fs::read_to_string(modules.join("modules.dep"))
                .with_context(|| format!("reading {}/modules.dep", modules.display()))?;
            let builtin = fs::read_to_string(modules.join("modules.builtin")).unwrap_or_default();
            let order =
                load_order(stage.wanted(), &dependencies, &builtin).with_context(|| format!("kernel {release}"))?;
            fs::create_dir(work.path().join(stage.name()))?;
            let mut names = String::new();
            for path in order {
                let name = module_name(&path);
                write(
                    &format!("{}/{name}.ko", stage.name()),
                    without_signature(&image::plain_file(&modules.join(&path))?),
                )?;
                names.push_str(&name);
                names.push('\n');
            }
            write(&format!("{}/order", stage.name()), names.as_bytes())?;
        }
        write("vmlinux", &image::plain_kernel(image)?)?;
        if keep_modules {
            fs::rename(modules, work.path().join("modules"))?;
            write("modules-path", b"modules")?;
        } else {
            write("modules-path", modules.to_str().context("a path that is not UTF-8")?.as_bytes())?;
        }
        let made = work.keep();
        // An older try that is no longer usable makes room; someone else's that was quicker is as good as ours.
        if Self::open(folder).is_err() && folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        if fs::rename(&made, folder).is_err() {
            fs::remove_dir_all(&made).with_context(|| format!("removing {}", made.display()))?;
        }
        Self::open(folder)
    }

    /// The modules of a lot, in the order in which they are loaded.
    ///
    /// # Errors
    ///
    /// The list cannot be read.
    pub(crate) fn boot_modules(&self, stage: Stage) -> Result<Vec<Module>> {
        let folder = self.folder.join(stage.name());
        let order =
            fs::read_to_string(folder.join("order")).with_context(|| format!("reading {}/order", folder.display()))?;
        Ok(order
            .lines()
            .map(|name| Module { name: name.to_owned(), path: folder.join(format!("{name}.ko")) })
            .collect())
    }
}

/// A module without the signature behind it: checking one takes the emulated processor some 30 ms, and each comes from a package
/// whose own signature was checked.
fn without_signature(module: &[u8]) -> &[u8] {
    const MARK: &[u8] = b"~Module signature appended~\n";
    // Before the mark is the trailer, whose last four bytes are the signature's length; before that, the signature.
    const TRAILER: usize = 12;
    let signed = || {
        let rest = module.strip_suffix(MARK)?;
        let length = u32::from_be_bytes(*rest.last_chunk()?);
        rest.get(..rest.len().checked_sub(TRAILER + usize::try_from(length).ok()?)?)
    };
    signed().unwrap_or(module)
}

/// Whether these modules hold all that the guest needs.
pub(crate) fn suffices(modules: &Path) -> bool {
    let Ok(dependencies) = fs::read_to_string(modules.join("modules.dep")) else { return false };
    let builtin = fs::read_to_string(modules.join("modules.builtin")).unwrap_or_default();
    let stages = [Stage::Files, Stage::Devices];
    stages.iter().all(|stage| match load_order(stage.wanted(), &dependencies, &builtin) {
        Ok(order) => order.iter().all(|path| modules.join(path).is_file()),
        Err(_) => false,
    })
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
            // Since Linux 6.15 the table is part of the kernel's library, and the module gone.
            None if builtin.contains(name) || name == "crc32_generic" => {}
            None => bail!("module {name} is neither in modules.dep nor in modules.builtin"),
        }
    }
    Ok(order)
}

/// `kernel/net/9p/9p.ko.xz` is the module `9p`; dashes and underscores mean the same.
fn module_name(path: &str) -> String {
    let file = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    file.split('.').next().unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "kernel/a/one.ko: kernel/a/two-b.ko.xz kernel/a/three.ko\n\
                                kernel/a/two-b.ko.xz: kernel/a/three.ko\nkernel/a/three.ko:\n";

    #[test]
    fn modules_are_loaded_after_what_they_need_and_once() {
        let order = load_order(&["one", "two_b"], DEPENDENCIES, "").unwrap();
        assert_eq!(order, ["kernel/a/three.ko", "kernel/a/two-b.ko.xz", "kernel/a/one.ko"]);
    }

    #[test]
    fn a_module_that_is_built_in_is_not_loaded() {
        assert!(load_order(&["four"], DEPENDENCIES, "kernel/b/four.ko\n").unwrap().is_empty());
    }

    #[test]
    fn a_modules_signature_is_cut_off() {
        let signed = b"ELFsign\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x04~Module signature appended~\n";
        assert_eq!(without_signature(signed), b"ELF");
        assert_eq!(without_signature(b"ELF"), b"ELF");
        let torn = b"\0\0\x10\0~Module signature appended~\n";
        assert_eq!(without_signature(torn), torn);
    }

    #[test]
    fn a_missing_module_is_named() {
        let error = load_order(&["five"], DEPENDENCIES, "").unwrap_err();
        assert!(error.to_string().contains("five"), "{error}");
    }

    #[test]
    fn a_kernel_is_prepared_whole_and_opened_again() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("modules");
        fs::create_dir(&modules).unwrap();
        let mut dependencies = String::new();
        for stage in [Stage::Files, Stage::Devices] {
            for name in stage.wanted() {
                fs::write(modules.join(format!("{name}.ko")), name).unwrap();
                dependencies.push_str(&format!("{name}.ko:\n"));
            }
        }
        fs::write(modules.join("modules.dep"), dependencies).unwrap();
        assert!(suffices(&modules));
        let image = root.path().join("vmlinux");
        fs::write(&image, b"\x7fELF kernel").unwrap();
        let folder = root.path().join("cache/kernel");
        let kernel = Kernel::prepare(&folder, "1.2.3", &image, &modules, false).unwrap();
        assert_eq!(kernel.release, "1.2.3");
        let first = &kernel.boot_modules(Stage::Files).unwrap()[0];
        assert_eq!(fs::read(&first.path).unwrap(), b"virtio_mmio");
        // Nothing half-made is left beside it.
        assert_eq!(fs::read_dir(root.path().join("cache")).unwrap().count(), 1);
        fs::remove_file(modules.join("rdma_rxe.ko")).unwrap();
        assert!(!suffices(&modules));
    }
}
