//! Getting the plain kernel out of the compressed image that distributions ship: QEMU starts it at once, and saves the guest the
//! unpacking, which takes seconds under emulation.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};

/// Compression formats of kernels, by their first bytes, and the program that unpacks each.
const FORMATS: &[(&[u8], &[&str])] = &[
    (
        b"\xfd7zXZ\0",
        &["xz", "--decompress", "--stdout", "--single-stream"],
    ),
    (
        b"\x28\xb5\x2f\xfd",
        &["zstd", "--decompress", "--stdout", "--quiet"],
    ),
    (
        b"\x02\x21\x4c\x18",
        &["lz4", "--decompress", "--stdout", "--quiet"],
    ),
    (
        b"\x1f\x8b\x08",
        &["gzip", "--decompress", "--stdout", "--quiet"],
    ),
];

/// Writes the ELF kernel inside `image` to `output`.
///
/// # Errors
///
/// The image is not a bzImage, is compressed in a way that is not known here, or lacks the entry point that QEMU starts.
pub(crate) fn extract(image: &Path, output: &Path) -> Result<()> {
    let bytes = fs::read(image).with_context(|| format!("reading {}", image.display()))?;
    let payload =
        payload(&bytes).with_context(|| format!("{} is not a bzImage", image.display()))?;
    let Some((_, command)) = FORMATS.iter().find(|(magic, _)| payload.starts_with(magic)) else {
        bail!("{} is compressed in an unknown way", image.display());
    };
    let kernel = unpack(payload, command)?;
    if !kernel.starts_with(b"\x7fELF") {
        bail!("what {} holds is no ELF kernel", image.display());
    }
    fs::write(output, kernel).with_context(|| format!("writing {}", output.display()))
}

/// The compressed kernel in a bzImage: the header has its place, counted from the end of the setup sectors, and its length.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number =
        |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup_sectors = match *image.get(0x1f1)? {
        0 => 4,
        count => usize::from(count),
    };
    let start = (setup_sectors + 1) * 512 + number(0x248)?;
    // The last four bytes are the unpacked size, which is not part of the stream.
    image.get(start..start + number(0x24c)? - 4)
}

/// Runs `input` through an unpacker.
pub(crate) fn unpack(input: &[u8], command: &[&str]) -> Result<Vec<u8>> {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", command[0]))?;
    let mut pipe = child.stdin.take().expect("a pipe was asked for");
    let output = thread::scope(|scope| {
        // An unpacker that has seen enough closes its end.
        scope.spawn(move || drop(pipe.write_all(input)));
        child.wait_with_output()
    })?;
    if !output.status.success() {
        bail!("{} failed: {}", command.join(" "), output.status);
    }
    Ok(output.stdout)
}
