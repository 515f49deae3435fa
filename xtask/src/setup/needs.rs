//! What the tasks need of the system, how each thing is looked for, and the packages that bring it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::manager::Manager;

/// Which task needs a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// `run` and `vm`; `test` and `ci` need it too.
    Run,
    /// `test` and `ci` alone.
    Test,
}

/// One thing that must be there.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) what: &'static str,
    pub(crate) purpose: Purpose,
    probe: Probe,
    /// For apt, dnf, pacman and zypper; empty where the distribution has no such package.
    packages: [&'static str; 4],
}

#[derive(Debug)]
enum Probe {
    Program(&'static str),
    Header(&'static str),
    /// A file in a library folder whose name starts and ends like this.
    Library(&'static str, &'static str),
    StaticBusybox,
}

use Probe::{Header, Library, Program, StaticBusybox};
use Purpose::{Run, Test};

#[rustfmt::skip]
pub(crate) const NEEDS: &[Need] = &[
    need("a C compiler (cc)", Run, Program("cc"), ["gcc", "gcc", "gcc", "gcc"]),
    need("the C library's headers", Run, Header("stdio.h"), ["libc6-dev", "glibc-devel", "glibc", "glibc-devel"]),
    need("pkg-config", Run, Program("pkg-config"), ["pkg-config", "pkgconf-pkg-config", "pkgconf", "pkg-config"]),
    need("libclang", Run, Library("libclang", ""), ["libclang-dev", "clang-devel", "clang", "clang-devel"]),
    need("libibverbs' headers", Run, Header("infiniband/verbs.h"), ["libibverbs-dev", "rdma-core-devel", "rdma-core", "rdma-core-devel"]),
    need("librdmacm's headers", Run, Header("rdma/rdma_cma.h"), ["librdmacm-dev", "rdma-core-devel", "rdma-core", "rdma-core-devel"]),
    need("the rxe provider of libibverbs", Run, Library("libibverbs/librxe-", ".so"), ["ibverbs-providers", "libibverbs", "rdma-core", "libibverbs"]),
    need("QEMU", Run, Program("qemu-system-x86_64"), ["qemu-system-x86", "qemu-system-x86", "qemu-system-x86", "qemu-x86"]),
    need("a static busybox", Run, StaticBusybox, ["busybox-static", "busybox", "busybox", "busybox-static"]),
    need("modprobe", Run, Program("modprobe"), ["kmod", "kmod", "kmod", "kmod"]),
    need("depmod", Run, Program("depmod"), ["kmod", "kmod", "kmod", "kmod"]),
    need("ip", Run, Program("ip"), ["iproute2", "iproute", "iproute2", "iproute2"]),
    need("rdma", Run, Program("rdma"), ["iproute2", "iproute", "iproute2", "iproute2"]),
    need("tc", Run, Program("tc"), ["iproute2", "iproute-tc", "iproute2", "iproute2"]),
    need("xz", Run, Program("xz"), ["xz-utils", "xz", "xz", "xz"]),
    need("zstd", Run, Program("zstd"), ["zstd", "zstd", "zstd", "zstd"]),
    need("setsid", Run, Program("setsid"), ["util-linux", "util-linux-core", "util-linux", "util-linux"]),
    need("ibv_rc_pingpong", Test, Program("ibv_rc_pingpong"), ["ibverbs-utils", "libibverbs-utils", "rdma-core", "libibverbs-utils"]),
    need("rping", Test, Program("rping"), ["rdmacm-utils", "librdmacm-utils", "rdma-core", "librdmacm-utils"]),
    need("perftest", Test, Program("ib_send_bw"), ["perftest", "perftest", "", "perftest"]),
    need("cpio", Test, Program("cpio"), ["cpio", "cpio", "cpio", "cpio"]),
    need("lld", Test, Program("ld.lld"), ["lld", "lld", "lld", "lld"]),
    need("valgrind", Test, Program("valgrind"), ["valgrind", "valgrind", "valgrind", "valgrind"]),
];

const fn need(what: &'static str, purpose: Purpose, probe: Probe, packages: [&'static str; 4]) -> Need {
    Need { what, purpose, probe, packages }
}

impl Need {
    /// Whether the thing itself is there.
    pub(crate) fn is_met(&self) -> bool {
        match self.probe {
            Program(name) => find_program(name).is_some(),
            Header(name) => header_folders().iter().any(|folder| folder.join(name).is_file()),
            Library(start, end) => has_library(start, end),
            StaticBusybox => static_busybox().is_some(),
        }
    }

    /// The package that brings it.
    pub(crate) fn package(&self, manager: Manager) -> Option<&'static str> {
        Some(self.packages[manager as usize]).filter(|name| !name.is_empty())
    }
}

/// A program in the search path or among the administrator's, which an ordinary user's search path may lack.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Where headers are; the variables are the ones that the build scripts of the bindings read.
fn header_folders() -> Vec<PathBuf> {
    let explicit = ["IBVERBS_INCLUDE_DIR", "RDMACM_INCLUDE_DIR"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    explicit.chain(["/usr/include", "/usr/local/include"].map(PathBuf::from)).collect()
}

fn has_library(start: &str, end: &str) -> bool {
    let (subfolder, start) = start.rsplit_once('/').unwrap_or(("", start));
    library_folders().iter().any(|folder| {
        let Ok(mut entries) = fs::read_dir(folder.join(subfolder)) else { return false };
        entries.any(|entry| {
            let name = entry.map(|entry| entry.file_name()).unwrap_or_default();
            name.to_str().is_some_and(|name| name.starts_with(start) && name.ends_with(end) && name.contains(".so"))
        })
    })
}

fn library_folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = env::var_os("LIBCLANG_PATH").map(PathBuf::from).into_iter().collect();
    folders.extend(
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"]
            .map(PathBuf::from),
    );
    // Debian and Fedora keep several versions of LLVM apart.
    for parent in ["/usr/lib", "/usr/lib64"] {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        let llvm = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("llvm"));
        folders.extend(llvm.flat_map(|entry| [entry.path().join("lib"), entry.path().join("lib64")]));
    }
    folders
}

/// A busybox that runs where there is no libc.
pub(crate) fn static_busybox() -> Option<PathBuf> {
    let names = ["busybox", "busybox-static", "busybox.static"];
    names.into_iter().filter_map(find_program).find(|path| fs::read(path).is_ok_and(|bytes| is_static(&bytes)))
}

/// Whether a 64-bit program asks for no interpreter, which is what loads shared libraries.
fn is_static(program: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at + length)?;
        Some(bytes.iter().rev().fold(0_usize, |value, byte| value << 8 | usize::from(*byte)))
    };
    let headers = || Some((number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?));
    let Some((start, size, count)) = headers().filter(|_| program.starts_with(b"\x7fELF\x02")) else { return false };
    (0..count).all(|index| number(start + index * size, 4).is_some_and(|kind| kind != INTERPRETER as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_has_a_package_for_apt_dnf_and_zypper() {
        for need in NEEDS {
            for manager in [Manager::Apt, Manager::Dnf, Manager::Zypper] {
                assert!(need.package(manager).is_some(), "{} with {manager:?}", need.what);
            }
        }
    }

    #[test]
    fn package_names_are_words() {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        for name in NEEDS.iter().flat_map(|need| need.packages) {
            assert!(name.chars().all(word), "{name}");
        }
    }

    #[test]
    fn a_program_that_uses_shared_libraries_is_not_static() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        assert!(!is_static(&own));
        assert!(!is_static(b"#!/bin/sh\n"));
        let busybox = static_busybox().expect("busybox-static, which setup installs");
        assert!(is_static(&fs::read(busybox).unwrap()));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        assert!(!need("", Run, Program("no-such-program"), [""; 4]).is_met());
        assert!(!need("", Run, Header("no/such/header.h"), [""; 4]).is_met());
        assert!(!need("", Run, Library("libnosuch", ""), [""; 4]).is_met());
        assert!(need("", Run, Program("sh"), [""; 4]).is_met());
    }
}
