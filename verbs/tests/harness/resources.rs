//! What a process uses of the device and of the system.

use std::fs;
use std::process::Command;

const KINDS: [&str; 6] = ["qp", "cq", "mr", "pd", "ctx", "srq"];

/// The objects of these kinds that the kernel holds for programs, a line each.
fn all(kinds: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in kinds {
        let output = Command::new("rdma").args(["resource", "show", kind]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        // Those of the kernel itself have no process.
        lines.extend(text.lines().filter(|line| line.contains(" pid ")).map(|line| format!("{kind} {line}")));
    }
    lines
}

/// The objects that the kernel holds for this thread, a line each: what it calls a process identifier is the thread's.
pub(crate) fn resources() -> Vec<String> {
    resources_of(&KINDS)
}

/// Those of these kinds. (The command that lists a kind takes longer to start than most tests take.)
pub(crate) fn resources_of(kinds: &[&str]) -> Vec<String> {
    let thread = fs::read_link("/proc/thread-self").unwrap();
    let owner = format!(" pid {} ", thread.file_name().unwrap().to_str().unwrap());
    all(kinds).into_iter().filter(|line| line.contains(&owner)).collect()
}

/// What there is: objects in the device, of whichever thread; open files; mappings.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Used {
    objects: Vec<String>,
    descriptors: usize,
    mappings: usize,
}

impl Used {
    /// The objects in the device.
    pub(crate) fn objects(&self) -> &[String] {
        &self.objects
    }
}

pub(crate) fn used() -> Used {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    // The sanitizer keeps freed memory for a while, in mappings of its own.
    let is_sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = if is_sanitized { 0 } else { maps.lines().count() };
    Used { objects: all(&KINDS), descriptors, mappings }
}
