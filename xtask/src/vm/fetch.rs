//! Finding a kernel: the host's own, one that the user names, or the distribution's package, fetched and unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::apt::Apt;
use super::kernel::{self, Kernel};
use crate::say;
use crate::step;

/// The kernel to boot: `wanted` names a folder, a package, or a Debian suite; without it the host's own kernel does, if it can,
/// else the distribution's package.
///
/// # Errors
///
/// There is none, or it cannot be fetched or used.
pub(crate) fn kernel(target: &Path, wanted: Option<&str>) -> Result<Kernel> {
    let cache = target.join("vm");
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    // Several runs at once want one download, and nobody may take away what another one is about to use.
    let lock = fs::File::create(cache.join("lock")).with_context(|| format!("writing {}/lock", cache.display()))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    remove_leftovers(&cache)?;
    match wanted {
        None => match of_host(&cache, Path::new("/"))? {
            Some(kernel) => Ok(kernel),
            None => package(&cache, None),
        },
        Some(name) if name.contains('/') && !Path::new(name).is_dir() => match name.split_once('/') {
            // As apt writes it.
            Some((package_name, suite)) if package_name.starts_with("linux-image") && !suite.contains('/') => {
                package(&cache, Some((suite, package_name)))
            }
            _ => bail!("--kernel {name}: there is no such folder"),
        },
        Some(name) if Path::new(name).is_dir() => of_folder(&cache, &fs::canonicalize(name)?),
        Some(name) if name.starts_with("linux-image") => named_package(&cache, name),
        Some(suite) => package(&cache, Some((suite, super::apt::META_PACKAGE))),
    }
}

/// Removes what a run that was killed has left half-made; nobody else makes anything while we hold the lock.
fn remove_leftovers(cache: &Path) -> Result<()> {
    for entry in fs::read_dir(cache)?.flatten() {
        let name = entry.file_name();
        if ["preparing-", "unpacking-"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// The running kernel's image and modules, where they are readable and have what the guest needs.
fn of_host(cache: &Path, root: &Path) -> Result<Option<Kernel>> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("reading the kernel's release")?;
    let release = release.trim();
    let Some((image, modules)) = find(root, release) else { return Ok(None) };
    if !kernel::suffices(&modules) || fs::File::open(&image).is_err() {
        return Ok(None);
    }
    let folder = cache.join(format!("host-{release}"));
    if let Ok(kernel) = Kernel::open(&folder) {
        return Ok(Some(kernel));
    }
    say!("using this host's own kernel {release}: it has rdma_rxe");
    Kernel::prepare(&folder, release, &image, &modules, false).map(Some)
}

/// The image and modules of `release` under `root`, where distributions put them.
fn find(root: &Path, release: &str) -> Option<(PathBuf, PathBuf)> {
    let modules = ["usr/lib/modules", "lib/modules"].map(|folder| root.join(folder).join(release));
    let modules = modules.into_iter().find(|folder| folder.is_dir())?;
    let images = [
        root.join(format!("boot/vmlinuz-{release}")),
        modules.join("vmlinuz"),
        root.join(format!("boot/vmlinux-{release}")),
    ];
    Some((images.into_iter().find(|image| image.is_file())?, modules))
}

/// A folder that holds an unpacked kernel package: `boot/vmlinuz-RELEASE` and `lib/modules/RELEASE`.
fn of_folder(cache: &Path, folder: &Path) -> Result<Kernel> {
    if let Ok(kernel) = Kernel::open(folder) {
        return Ok(kernel);
    }
    let expected = "expected boot/vmlinuz-RELEASE and lib/modules/RELEASE with its modules.dep (made by depmod)";
    let all = ["usr/lib/modules", "lib/modules"].map(|name| folder.join(name));
    let all =
        all.iter().find(|path| path.is_dir()).with_context(|| format!("--kernel {}: {expected}", folder.display()))?;
    let release = only_entry(all)?;
    let (image, modules) =
        find(folder, &release).with_context(|| format!("--kernel {}: {expected}", folder.display()))?;
    // The same folder may hold another kernel another day.
    let stamp = fs::metadata(&image)?.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let name = format!("folder-{release}-{stamp}-{:08x}", checksum(folder.as_os_str().as_encoded_bytes()));
    let prepared = cache.join(name);
    match Kernel::open(&prepared) {
        Ok(kernel) => Ok(kernel),
        Err(_) => Kernel::prepare(&prepared, &release, &image, &modules, false),
    }
}

/// A package by its name alone: apt's own lists know it, or one of Debian's newer suites does.
fn named_package(cache: &Path, name: &str) -> Result<Kernel> {
    if let Ok(kernel) = Kernel::open(&cache.join(name)) {
        return Ok(kernel);
    }
    let system = Apt::system()?;
    if system.knows(name) {
        return fetch(cache, &system, name);
    }
    let suites = super::apt::other_suites(name);
    for suite in suites {
        let apt = Apt::of_suite(&cache.join("apt"), suite)?;
        if apt.knows(name) {
            return fetch(cache, &apt, name);
        }
    }
    bail!(
        "no package {name} in apt's lists, nor in {}; `apt-get update` may help, or --kernel SUITE",
        suites.join(" or ")
    )
}

/// The kernel that a meta package stands for, from apt's own lists or from another suite's. Which one that was is remembered, and
/// asked for again only when `target/vm` is removed.
fn package(cache: &Path, of: Option<(&str, &str)>) -> Result<Kernel> {
    let (suite, meta) = of.unwrap_or(("default", super::apt::META_PACKAGE));
    let record = cache.join(format!("current-{suite}-{meta}"));
    if let Ok(name) = fs::read_to_string(&record) {
        if let Ok(kernel) = Kernel::open(&cache.join(name.trim())) {
            return Ok(kernel);
        }
    }
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    let apt = match of {
        None => Apt::system()?,
        Some((suite, _)) => Apt::of_suite(&cache.join("apt"), suite)?,
    };
    let name = apt.kernel_of(meta)?;
    let kernel = fetch(cache, &apt, &name)?;
    write_whole(&record, name.as_bytes())?;
    Ok(kernel)
}

/// Downloads a kernel package and makes a kernel of it.
fn fetch(cache: &Path, apt: &Apt, package: &str) -> Result<Kernel> {
    let folder = cache.join(package);
    if let Ok(kernel) = Kernel::open(&folder) {
        return Ok(kernel);
    }
    say!("fetching the kernel package {package} into {}; it is unpacked there, not installed", cache.display());
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    let work = tempfile::Builder::new().prefix("unpacking-").tempdir_in(cache);
    let work = work.with_context(|| format!("making a folder in {}", cache.display()))?;
    let archive = apt.download(package, work.path())?;
    let root = work.path().join("root");
    step::run_quietly(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&root))?;
    // depmod looks in lib/modules alone.
    if root.join("usr/lib/modules").is_dir() && !root.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", root.join("lib"))?;
    }
    let release = only_entry(&root.join("lib/modules"))?;
    step::run(Command::new(sbin("depmod")).arg("--basedir").arg(&root).arg(&release))?;
    let (image, modules) = find(&root, &release).with_context(|| format!("{package} has no kernel image"))?;
    Kernel::prepare(&folder, &release, &image, &modules, true)
}

/// An administrator's program, which an ordinary user's search path may lack.
pub(crate) fn sbin(name: &str) -> PathBuf {
    let found =
        ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(name)).into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| name.into())
}

fn only_entry(folder: &Path) -> Result<String> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry?.file_name().to_string_lossy().into_owned()),
        _ => bail!("{} does not hold the modules of one kernel", folder.display()),
    }
}

/// Tells folders apart (FNV-1a).
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let write = || -> Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().context("a file in a folder")?)?;
        file.write_all(content)?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}
