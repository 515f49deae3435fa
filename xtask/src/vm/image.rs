//! Getting the plain kernel out of the compressed image that distributions ship: QEMU starts it at once, and saves the guest the
//! unpacking, which takes seconds under emulation.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};

const ELF: &[u8] = b"\x7fELF";

/// Compression formats of kernels and modules, by their first bytes, and the program that unpacks each.
const FORMATS: &[(&[u8], &[&str])] = &[
    (b"\xfd7zXZ\0", &["xz", "--decompress", "--stdout", "--single-stream"]),
    (b"\x28\xb5\x2f\xfd", &["zstd", "--decompress", "--stdout", "--quiet"]),
    (b"\x02\x21\x4c\x18", &["lz4", "--decompress", "--stdout", "--quiet"]),
    (b"\x1f\x8b\x08", &["gzip", "--decompress", "--stdout", "--quiet"]),
];

/// The ELF kernel in the file `image`; the image as it is when it is one already.
///
/// # Errors
///
/// The image is not a bzImage, or is compressed in a way that is not known here.
pub(crate) fn plain_kernel(image: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(image).with_context(|| format!("reading {}", image.display()))?;
    if bytes.starts_with(ELF) {
        return Ok(bytes);
    }
    let payload = payload(&bytes).with_context(|| format!("{} is not a bzImage", image.display()))?;
    let kernel = plain(payload)?.with_context(|| format!("{} is compressed in an unknown way", image.display()))?;
    if !kernel.starts_with(ELF) {
        bail!("what {} holds is no ELF kernel", image.display());
    }
    Ok(kernel)
}

/// What a file holds, unpacked if it is compressed.
///
/// # Errors
///
/// It cannot be read or unpacked.
pub(crate) fn plain_file(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let unpacked = plain(&bytes).with_context(|| format!("unpacking {}", path.display()))?;
    Ok(unpacked.unwrap_or(bytes))
}

/// The bytes unpacked; `None` when they are not compressed in a known way.
fn plain(bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let format = FORMATS.iter().find(|(magic, _)| bytes.starts_with(magic));
    format.map(|(_, command)| unpack(bytes, command)).transpose()
}

/// The compressed kernel in a bzImage: the header has its place, counted from the end of the setup sectors, and its length.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
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
fn unpack(input: &[u8], command: &[&str]) -> Result<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage with one setup sector and this payload.
    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 64];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&64_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len() + 4).unwrap().to_le_bytes());
        image.extend(payload);
        image.extend([9, 9, 9, 9]);
        image.extend(b"what follows the payload");
        image
    }

    #[test]
    fn the_payload_is_cut_out_without_the_size_behind_it() {
        assert_eq!(payload(&bzimage(b"compressed")), Some(&b"compressed"[..]));
    }

    #[test]
    fn an_image_that_ends_early_has_no_payload() {
        let image = bzimage(b"compressed");
        assert_eq!(payload(&image[..1095]), None);
        assert_eq!(payload(b"short"), None);
    }

    #[test]
    fn a_compressed_kernel_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = b"\x7fELF and the rest";
        let packed = unpack(kernel, &["gzip", "--stdout"]).unwrap();
        let path = folder.path().join("vmlinuz");
        fs::write(&path, bzimage(&packed)).unwrap();
        assert_eq!(plain_kernel(&path).unwrap(), kernel);
    }
}
