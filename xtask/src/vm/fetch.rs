//! Finding a kernel, or fetching one.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::image;
use super::kernel::Kernel;
use crate::say;
use crate::step;

/// Debian's package that depends on the current kernel.
const META_PACKAGE: &str = "linux-image-amd64";

/// The kernel to boot.
///
/// # Errors
///
/// There is none and none can be fetched.
pub(crate) fn kernel(target: &Path) -> Result<Kernel> {
    let cache = target.join("vm");
    let record = cache.join("default-kernel");
    if let Ok(package) = fs::read_to_string(&record) {
        if let Ok(kernel) = open(&cache.join(package.trim())) {
            return Ok(kernel);
        }
    }
    fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    let package = current_package()?;
    let kernel = unpacked(&cache, &package)?;
    write_whole(&record, package.as_bytes())?;
    Ok(kernel)
}

fn current_package() -> Result<String> {
    let output = Command::new("apt-cache")
        .args(["depends", "--important", META_PACKAGE])
        .output()
        .context("starting apt-cache")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| {
        line.trim()
            .strip_prefix("Depends: ")
            .filter(|name| name.starts_with("linux-image-"))
    });
    found.map(str::to_owned).with_context(|| {
        format!("{META_PACKAGE} is unknown to apt: run `apt-get update` as root, then again")
    })
}

fn unpacked(cache: &Path, package: &str) -> Result<Kernel> {
    let folder = cache.join(package);
    if let Ok(kernel) = open(&folder) {
        return Ok(kernel);
    }
    say!(
        "fetching the kernel package {package} into {}; it is unpacked there, not installed",
        cache.display()
    );
    let work = tempfile::Builder::new()
        .prefix("unpacking-")
        .tempdir_in(cache)
        .context("making a temporary folder")?;
    step::run(
        Command::new("apt-get")
            .args([
                "download",
                "--quiet",
                "--option=APT::Sandbox::User=root",
                package,
            ])
            .current_dir(work.path()),
    )?;
    let archive = fs::read_dir(work.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get download left no package")?;
    let root = work.path().join("root");
    step::run(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&archive)
            .arg(&root),
    )?;
    let modules = root.join(if root.join("usr/lib/modules").is_dir() {
        "usr/lib/modules"
    } else {
        "lib/modules"
    });
    let release = only_entry(&modules)?;
    step::run(
        Command::new("depmod")
            .arg("--basedir")
            .arg(modules.join("../.."))
            .arg(&release),
    )?;
    let done = work.path().join("kernel");
    fs::create_dir(&done)?;
    fs::rename(modules.join(&release), done.join("modules"))?;
    image::extract(
        &root.join("boot").join(format!("vmlinuz-{release}")),
        &done.join("vmlinux"),
    )?;
    fs::write(done.join("release"), &release)?;
    fs::rename(&done, &folder).with_context(|| format!("renaming to {}", folder.display()))?;
    open(&folder)
}

fn only_entry(folder: &Path) -> Result<String> {
    let mut entries =
        fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry?.file_name().to_string_lossy().into_owned()),
        _ => bail!(
            "{} does not hold the modules of one kernel",
            folder.display()
        ),
    }
}

fn open(folder: &Path) -> Result<Kernel> {
    let release = fs::read_to_string(folder.join("release"))?;
    Ok(Kernel {
        release,
        image: folder.join("vmlinux"),
        modules: folder.join("modules"),
    })
}

fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let folder = path.parent().context("a file in a folder")?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.persist(path)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(())
}
