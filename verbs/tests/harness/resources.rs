//! What a process uses of the device and of the system.

use std::fs;
use std::process::Command;

/// The objects that the kernel holds for programs, a line each.
fn all() -> Vec<String> {
    let mut lines = Vec::new();
    for kind in ["qp", "cq", "mr", "pd", "ctx", "srq"] {
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
    let thread = fs::read_link("/proc/thread-self").unwrap();
    let owner = format!(" pid {} ", thread.file_name().unwrap().to_str().unwrap());
    all().into_iter().filter(|line| line.contains(&owner)).collect()
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
    let mappings = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    Used { objects: all(), descriptors, mappings }
}
