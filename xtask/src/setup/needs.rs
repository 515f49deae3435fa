//! What the tasks need of the system, how each is looked for, and which package has it.
//!
//! Not here, on purpose: certificates for https (cargo had to have them to fetch what xtask is built of), and apt's and dpkg's own
//! programs, which every system that has `apt-get` has.

use super::probe::Probe;

/// What something is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Building the workspace.
    Build,
    /// Fetching a kernel and booting the virtual machine.
    Machine,
    /// The tests: C programs as peers, and tools that look at what was built.
    Tests,
    /// The program that `bench` compares with; the tests have it as a peer.
    Perftest,
    /// Counting instructions, by `bench --instructions` and by tests.
    Valgrind,
    /// The parts of Rust that `ci` runs. They come from Rust's own installer, so they are reported and never installed from here.
    Rust,
}

impl Needs {
    /// All of them.
    pub(crate) const ALL: &[Self] =
        &[Self::Build, Self::Machine, Self::Tests, Self::Perftest, Self::Valgrind, Self::Rust];

    /// What `coverage` needs.
    pub(crate) const TO_BUILD: &[Self] = &[Self::Build];

    /// What `run` and `vm` need.
    pub(crate) const TO_RUN: &[Self] = &[Self::Build, Self::Machine];

    /// What `test` needs.
    pub(crate) const TO_TEST: &[Self] = &[Self::Build, Self::Machine, Self::Tests, Self::Perftest, Self::Valgrind];

    /// What `bench` needs.
    pub(crate) const TO_BENCH: &[Self] = &[Self::Build, Self::Machine, Self::Perftest];

    /// What `bench --instructions` needs.
    pub(crate) const TO_COUNT: &[Self] = &[Self::Build, Self::Valgrind];

    /// For use after "for".
    pub(crate) fn purpose(self) -> &'static str {
        match self {
            Self::Build => "the build",
            Self::Machine => "the virtual machine",
            Self::Tests => "the tests",
            Self::Perftest => "the tests and `cargo xtask bench`",
            Self::Valgrind => "the tests and `cargo xtask bench --instructions`",
            Self::Rust => "`cargo xtask ci`",
        }
    }
}

/// One thing that has to be there.
#[derive(Debug)]
pub(crate) struct Need {
    /// What it is, to a reader.
    pub(crate) what: &'static str,
    pub(crate) needs: Needs,
    pub(crate) probe: Probe,
    pub(crate) packages: Packages,
}

/// The package that has it, by package manager; empty where the distribution has none.
#[derive(Debug)]
pub(crate) struct Packages {
    pub(crate) apt: &'static str,
    pub(crate) dnf: &'static str,
    pub(crate) pacman: &'static str,
    pub(crate) zypper: &'static str,
}

const fn packages(apt: &'static str, dnf: &'static str, pacman: &'static str, zypper: &'static str) -> Packages {
    Packages { apt, dnf, pacman, zypper }
}

const fn need(what: &'static str, needs: Needs, probe: Probe, packages: Packages) -> Need {
    Need { what, needs, probe, packages }
}

/// All that is needed, in the order in which it is reported.
pub(crate) const ALL: &[Need] = &[
    need("C compiler (cc)", Needs::Build, Probe::Program("cc"), packages("gcc", "gcc", "gcc", "gcc")),
    need(
        "headers of the C library (stdio.h)",
        Needs::Build,
        Probe::Header("stdio.h"),
        packages("libc6-dev", "glibc-devel", "glibc", "glibc-devel"),
    ),
    need(
        "pkg-config",
        Needs::Build,
        Probe::Program("pkg-config"),
        packages("pkg-config", "pkgconf-pkg-config", "pkgconf", "pkg-config"),
    ),
    need("libclang", Needs::Build, Probe::Libclang, LIBCLANG),
    need("clang's own headers (stddef.h)", Needs::Build, Probe::ClangHeaders, LIBCLANG),
    need(
        "infiniband/verbs.h",
        Needs::Build,
        Probe::LibraryHeader { file: "infiniband/verbs.h", variable: "IBVERBS_INCLUDE_DIR", pkg_config: "libibverbs" },
        packages("libibverbs-dev", "rdma-core-devel", "rdma-core", "rdma-core-devel"),
    ),
    need(
        "rdma/rdma_cma.h",
        Needs::Build,
        Probe::LibraryHeader { file: "rdma/rdma_cma.h", variable: "RDMACM_INCLUDE_DIR", pkg_config: "librdmacm" },
        packages("librdmacm-dev", "rdma-core-devel", "rdma-core", "rdma-core-devel"),
    ),
    need(
        "QEMU (qemu-system-x86_64)",
        Needs::Machine,
        Probe::Program("qemu-system-x86_64"),
        packages("qemu-system-x86", "qemu-system-x86-core", "qemu-system-x86", "qemu-x86"),
    ),
    // openSUSE packs it apart from QEMU.
    need(
        "firmware of QEMU's microvm (bios-microvm.bin)",
        Needs::Machine,
        Probe::Files(&[
            "usr/share/qemu/bios-microvm.bin",
            "usr/share/seabios/bios-microvm.bin",
            "usr/share/qemu-kvm/bios-microvm.bin",
            "usr/local/share/qemu/bios-microvm.bin",
        ]),
        packages("qemu-system-data", "seabios-bin", "qemu-system-x86-firmware", "qemu-microvm"),
    ),
    // The guest's first file system has no libraries.
    need(
        "busybox, linked statically",
        Needs::Machine,
        Probe::StaticBusybox,
        packages("busybox-static", "busybox", "busybox", "busybox-static"),
    ),
    need("depmod", Needs::Machine, Probe::Program("depmod"), KMOD),
    need("modprobe", Needs::Machine, Probe::Program("modprobe"), KMOD),
    need("xz", Needs::Machine, Probe::Program("xz"), packages("xz-utils", "xz", "xz", "xz")),
    need("zstd", Needs::Machine, Probe::Program("zstd"), packages("zstd", "zstd", "zstd", "zstd")),
    need("gzip", Needs::Machine, Probe::Program("gzip"), packages("gzip", "gzip", "gzip", "gzip")),
    need("setsid", Needs::Machine, Probe::Program("setsid"), UTIL_LINUX),
    need("ip", Needs::Machine, Probe::Program("ip"), packages("iproute2", "iproute", "iproute2", "iproute2")),
    need("rdma", Needs::Machine, Probe::Program("rdma"), packages("iproute2", "iproute", "iproute2", "iproute2")),
    need("tc", Needs::Machine, Probe::Program("tc"), packages("iproute2", "iproute-tc", "iproute2", "iproute2")),
    need(
        "libibverbs' rxe provider (librxe-rdmav*.so)",
        Needs::Machine,
        Probe::Files(&[
            "usr/lib/*/libibverbs/librxe-rdmav*.so",
            "usr/lib*/libibverbs/librxe-rdmav*.so",
            "usr/local/lib/*/libibverbs/librxe-rdmav*.so",
            "usr/local/lib*/libibverbs/librxe-rdmav*.so",
        ]),
        packages("ibverbs-providers", "libibverbs", "rdma-core", "libibverbs"),
    ),
    need("ibv_rc_pingpong", Needs::Tests, Probe::Program("ibv_rc_pingpong"), IBVERBS_UTILS),
    need("ibv_devinfo", Needs::Tests, Probe::Program("ibv_devinfo"), IBVERBS_UTILS),
    need("rping", Needs::Tests, Probe::Program("rping"), RDMACM_UTILS),
    need("ucmatose", Needs::Tests, Probe::Program("ucmatose"), RDMACM_UTILS),
    // Arch Linux has it among its users' recipes only.
    need(
        "perftest (ib_send_bw)",
        Needs::Perftest,
        Probe::Program("ib_send_bw"),
        packages("perftest", "perftest", "", "perftest"),
    ),
    need("lld (ld.lld)", Needs::Tests, Probe::Program("ld.lld"), packages("lld", "lld", "lld", "lld")),
    need(
        "valgrind",
        Needs::Valgrind,
        Probe::Program("valgrind"),
        packages("valgrind", "valgrind", "valgrind", "valgrind"),
    ),
    need("nm", Needs::Tests, Probe::Program("nm"), BINUTILS),
    need("readelf", Needs::Tests, Probe::Program("readelf"), BINUTILS),
    need("cpio", Needs::Tests, Probe::Program("cpio"), packages("cpio", "cpio", "cpio", "cpio")),
    need("setpriv", Needs::Tests, Probe::Program("setpriv"), UTIL_LINUX),
    need("unshare", Needs::Tests, Probe::Program("unshare"), UTIL_LINUX),
    need("rustfmt", Needs::Rust, Probe::Toolchain("rustfmt"), packages("rustfmt", "rustfmt", "rust", "rust")),
    need("clippy", Needs::Rust, Probe::Toolchain("cargo-clippy"), packages("rust-clippy", "clippy", "rust", "rust")),
];

const LIBCLANG: Packages = packages("libclang-dev", "clang-devel", "clang", "clang-devel");
const KMOD: Packages = packages("kmod", "kmod", "kmod", "kmod");
const UTIL_LINUX: Packages = packages("util-linux", "util-linux", "util-linux", "util-linux");
const IBVERBS_UTILS: Packages = packages("ibverbs-utils", "libibverbs-utils", "rdma-core", "libibverbs-utils");
const RDMACM_UTILS: Packages = packages("rdmacm-utils", "librdmacm-utils", "rdma-core", "librdmacm-utils");
const BINUTILS: Packages = packages("binutils", "binutils", "binutils", "binutils");

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::setup::manager::Manager;

    #[test]
    fn every_need_has_a_package_everywhere_except_perftest_on_arch() {
        for need in ALL {
            for &manager in Manager::ALL {
                let known = manager.package(need).is_some();
                let excepted = need.what.starts_with("perftest") && manager == Manager::Pacman;
                assert_eq!(known, !excepted, "{} with {manager:?}", need.what);
            }
        }
    }

    #[test]
    fn names_of_packages_are_single_words() {
        for need in ALL {
            for &manager in Manager::ALL {
                let package = manager.package(need).unwrap_or_default();
                let plain = |c: char| c.is_ascii_alphanumeric() || "-+.".contains(c);
                assert!(package.chars().all(plain), "{package:?}");
            }
        }
    }

    #[test]
    fn each_need_is_named_once() {
        let names: HashSet<&str> = ALL.iter().map(|need| need.what).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn every_purpose_has_needs() {
        for &purpose in Needs::ALL {
            assert!(ALL.iter().any(|need| need.needs == purpose), "{purpose:?}");
        }
    }
}
