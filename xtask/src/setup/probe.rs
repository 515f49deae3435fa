//! Looking for things themselves: programs, headers, libraries. What a package manager believes is no proof, and much gets
//! installed without it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pattern::matches;

/// How something is looked for.
#[derive(Debug)]
pub(crate) enum Probe {
    /// A program of this name.
    Program(&'static str),
    /// A header where the C compiler looks.
    Header(&'static str),
    /// A library's header, looked for as the library's build script does.
    LibraryHeader { file: &'static str, variable: &'static str, pkg_config: &'static str },
    /// A file that matches one of these patterns; `*` stands for any part of a name.
    Files(&'static [&'static str]),
    /// The library that bindgen loads.
    Libclang,
    /// The headers that belong to clang itself, without which libclang understands no C header.
    ClangHeaders,
    /// A busybox that needs no shared library.
    StaticBusybox,
    /// A program beside the running cargo. In PATH, rustup has a stand-in for each, whether the component is there or not.
    Toolchain(&'static str),
}

/// Where clang-sys, which loads the library for bindgen, looks for it.
const LIBRARY_FOLDERS: &[&str] =
    &["usr/lib/llvm*/lib", "usr/lib64/llvm*/lib*", "usr/lib/*", "usr/lib*", "usr/local/lib*", "usr/local/llvm*/lib*"];

/// Where programs are that an ordinary user's PATH may lack.
const SYSTEM_PROGRAMS: &[&str] = &["usr/local/sbin", "usr/sbin", "sbin", "usr/bin", "bin"];

/// The system that is looked at.
#[derive(Debug)]
pub(crate) struct System {
    root: PathBuf,
    programs: Vec<PathBuf>,
    variables: HashMap<OsString, OsString>,
}

impl System {
    /// This one.
    pub(crate) fn host() -> Self {
        Self::new("/", std::env::vars_os())
    }

    /// One with its root at `root` and these environment variables.
    pub(crate) fn new(root: impl Into<PathBuf>, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let root = root.into();
        let variables: HashMap<_, _> = variables.into_iter().collect();
        let mut programs: Vec<PathBuf> =
            variables.get(OsStr::new("PATH")).map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
        programs.extend(SYSTEM_PROGRAMS.iter().map(|folder| root.join(folder)));
        Self { root, programs, variables }
    }

    /// Where it was found.
    pub(crate) fn find(&self, probe: &Probe) -> Option<PathBuf> {
        match *probe {
            Probe::Program(name) => self.program(name),
            Probe::Header(file) => self.header(file),
            Probe::LibraryHeader { file, variable, pkg_config } => {
                // As in the build script: the variable outranks all else, and pkg-config knows of unusual places.
                if let Some(folder) = self.variable(variable) {
                    return existing(folder.join(file));
                }
                self.header(file).or_else(|| existing(self.include_folder(pkg_config)?.join(file)))
            }
            Probe::Files(patterns) => self.first(patterns, |_| true),
            Probe::Libclang => self.libclang(),
            Probe::ClangHeaders => self.clang_headers(),
            Probe::StaticBusybox => self.static_busybox(),
            Probe::Toolchain(name) => match self.variable("CARGO") {
                Some(cargo) => existing(cargo.with_file_name(name)),
                None => self.program(name),
            },
        }
    }

    /// The program, in PATH or where the system keeps its own.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        self.programs.iter().map(|folder| folder.join(name)).find(|path| is_executable(path))
    }

    /// The file, if it can be read.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// A busybox that runs where no library is.
    pub(crate) fn static_busybox(&self) -> Option<PathBuf> {
        let names = ["busybox", "busybox-static", "busybox.static"];
        let all = self.programs.iter().flat_map(|folder| names.map(|name| folder.join(name)));
        all.into_iter().find(|path| is_executable(path) && is_static(path))
    }

    fn variable(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(OsStr::new(name)).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn header(&self, file: &str) -> Option<PathBuf> {
        // The second: Debian's headers that differ between architectures.
        ["usr/include", "usr/include/*-linux-gnu*", "usr/local/include"]
            .iter()
            .find_map(|folder| matches(&self.root, &format!("{folder}/{file}")).into_iter().next())
    }

    fn include_folder(&self, library: &str) -> Option<PathBuf> {
        let output =
            Command::new(self.program("pkg-config")?).args(["--variable=includedir", library]).output().ok()?;
        let folder = String::from_utf8(output.stdout).ok()?;
        (output.status.success() && !folder.trim().is_empty()).then(|| PathBuf::from(folder.trim()))
    }

    fn libclang(&self) -> Option<PathBuf> {
        // The library with clang's C++ interface lies beside the one with its C interface.
        let wanted = |path: &Path| !path.to_string_lossy().contains("libclang-cpp");
        if let Some(path) = self.variable("LIBCLANG_PATH") {
            if path.is_file() {
                return Some(path);
            }
            let found = LIBCLANG_NAMES.iter().flat_map(|name| matches(&path, name)).find(|path| wanted(path));
            if found.is_some() {
                return found;
            }
        }
        let patterns: Vec<String> = LIBRARY_FOLDERS
            .iter()
            .flat_map(|folder| LIBCLANG_NAMES.iter().map(move |name| format!("{folder}/{name}")))
            .collect();
        self.first(&patterns, wanted)
    }

    fn clang_headers(&self) -> Option<PathBuf> {
        let beside = self.variable("LIBCLANG_PATH").and_then(|path| {
            let folder = if path.is_file() { path.parent()?.to_owned() } else { path };
            matches(&folder, "clang/*/include/stddef.h").into_iter().next()
        });
        let patterns: Vec<String> =
            LIBRARY_FOLDERS.iter().map(|folder| format!("{folder}/clang/*/include/stddef.h")).collect();
        beside.or_else(|| self.first(&patterns, |_| true))
    }

    fn first<P: AsRef<str>>(&self, patterns: &[P], wanted: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        patterns.iter().flat_map(|pattern| matches(&self.root, pattern.as_ref())).find(|path| wanted(path))
    }
}

const LIBCLANG_NAMES: &[&str] = &["libclang.so*", "libclang-*.so*"];

fn existing(path: PathBuf) -> Option<PathBuf> {
    path.exists().then_some(path)
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Whether the program asks for no dynamic linker: whether no header of its ELF file has the type `PT_INTERP`.
fn is_static(path: &Path) -> bool {
    const PT_INTERP: u32 = 3;
    let mut start = Vec::new();
    if File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start)).is_err() {
        return false;
    }
    // 64 bits, little-endian: what the virtual machine runs.
    if !start.starts_with(b"\x7fELF\x02\x01") {
        return false;
    }
    let bytes = |at: usize, count: usize| start.get(at..at.checked_add(count)?);
    let short = |at| Some(usize::from(u16::from_le_bytes(bytes(at, 2)?.try_into().ok()?)));
    let word = |at| Some(u32::from_le_bytes(bytes(at, 4)?.try_into().ok()?));
    let interpreted = || {
        let (table, size, count) = (word(32)? as usize, short(54)?, short(56)?);
        (0..count).map(|index| word(table + index * size)).try_fold(false, |any, kind| Some(any || kind? == PT_INTERP))
    };
    interpreted() == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::fake::{Root, elf};

    const VERBS: Probe =
        Probe::LibraryHeader { file: "infiniband/verbs.h", variable: "IBVERBS_INCLUDE_DIR", pkg_config: "libibverbs" };

    #[test]
    fn programs_are_found_in_path_and_where_the_system_has_its_own() {
        let root = Root::new();
        root.program("opt/tools/ip").program("usr/sbin/ip").program("usr/sbin/depmod");
        assert_eq!(root.system().program("ip"), Some(root.path("usr/sbin/ip")));
        let system = root.system_with([("PATH", &root.path("opt/tools"))]);
        assert_eq!(system.program("ip"), Some(root.path("opt/tools/ip")));
        assert_eq!(system.find(&Probe::Program("depmod")), Some(root.path("usr/sbin/depmod")));
        assert_eq!(system.find(&Probe::Program("rdma")), None);
    }

    #[test]
    fn files_that_cannot_be_executed_and_folders_are_no_programs() {
        let root = Root::new();
        root.file("usr/bin/xz", "").file("usr/bin/zstd/file", "");
        assert_eq!(root.system().program("xz"), None);
        assert_eq!(root.system().program("zstd"), None);
    }

    #[test]
    fn headers_are_found_where_the_compiler_looks() {
        for folder in ["usr/include", "usr/include/x86_64-linux-gnu", "usr/local/include"] {
            let root = Root::new();
            assert_eq!(root.system().find(&VERBS), None);
            let path = format!("{folder}/infiniband/verbs.h");
            root.file(&path, "");
            assert_eq!(root.system().find(&VERBS), Some(root.path(&path)));
        }
    }

    #[test]
    fn the_variable_that_the_build_script_obeys_outranks_the_usual_folders() {
        let root = Root::new();
        root.file("usr/include/infiniband/verbs.h", "");
        let system = root.system_with([("IBVERBS_INCLUDE_DIR", &root.path("opt/include"))]);
        assert_eq!(system.find(&VERBS), None);
        root.file("opt/include/infiniband/verbs.h", "");
        assert_eq!(system.find(&VERBS), Some(root.path("opt/include/infiniband/verbs.h")));
    }

    #[test]
    fn pkg_config_knows_of_headers_in_unusual_folders() {
        let root = Root::new();
        let folder = root.path("opt/rdma/include");
        let script = format!("[ \"$*\" = '--variable=includedir libibverbs' ] && echo '{}'", folder.display());
        root.script("usr/bin/pkg-config", &script);
        assert_eq!(root.system().find(&VERBS), None);
        root.file("opt/rdma/include/infiniband/verbs.h", "");
        assert_eq!(root.system().find(&VERBS), Some(folder.join("infiniband/verbs.h")));
        root.script("usr/bin/pkg-config", "exit 1");
        assert_eq!(root.system().find(&VERBS), None);
    }

    #[test]
    fn libclang_is_found_wherever_a_distribution_puts_it() {
        for path in [
            "usr/lib/llvm-14/lib/libclang.so",
            "usr/lib/x86_64-linux-gnu/libclang-19.so.1",
            "usr/lib64/libclang.so.20.1",
            "usr/lib64/llvm20/lib64/libclang.so",
            "usr/lib/libclang.so",
            "usr/local/lib/libclang.so",
        ] {
            let root = Root::new();
            root.file("usr/lib/llvm-14/lib/libclang-cpp.so.14", "").file("usr/lib64/libclang-cpp.so", "");
            assert_eq!(root.system().find(&Probe::Libclang), None);
            root.file(path, "");
            assert_eq!(root.system().find(&Probe::Libclang), Some(root.path(path)));
        }
    }

    #[test]
    fn libclang_path_names_a_folder_or_the_library() {
        let root = Root::new();
        root.file("opt/llvm/lib/libclang-cpp.so", "").file("opt/llvm/lib/clang/20/include/stddef.h", "");
        let (folder, library) = (root.path("opt/llvm/lib"), root.path("opt/llvm/lib/libclang.so.20"));
        let by_folder = root.system_with([("LIBCLANG_PATH", &folder)]);
        let by_file = root.system_with([("LIBCLANG_PATH", &library)]);
        assert_eq!(by_folder.find(&Probe::Libclang), None);
        root.file("opt/llvm/lib/libclang.so.20", "");
        for system in [by_folder, by_file] {
            assert_eq!(system.find(&Probe::Libclang), Some(library.clone()));
            assert_eq!(system.find(&Probe::ClangHeaders), Some(folder.join("clang/20/include/stddef.h")));
        }
    }

    #[test]
    fn headers_of_the_c_compiler_are_not_clangs() {
        let root = Root::new();
        root.file("usr/lib/gcc/x86_64-linux-gnu/12/include/stddef.h", "");
        assert_eq!(root.system().find(&Probe::ClangHeaders), None);
        for path in ["usr/lib/llvm-14/lib/clang/14.0.6/include/stddef.h", "usr/lib64/clang/20/include/stddef.h"] {
            let root = Root::new();
            root.file(path, "");
            assert_eq!(root.system().find(&Probe::ClangHeaders), Some(root.path(path)));
        }
    }

    #[test]
    fn the_provider_is_found_in_every_layout_of_libraries() {
        let rxe = &crate::setup::needs::ALL
            .iter()
            .find(|need| need.what.contains("rxe provider"))
            .expect("it is needed")
            .probe;
        for folder in ["usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib"] {
            let root = Root::new();
            root.file(&format!("{folder}/libibverbs/libsiw-rdmav57.so"), "");
            assert_eq!(root.system().find(rxe), None);
            let path = format!("{folder}/libibverbs/librxe-rdmav57.so");
            root.file(&path, "");
            assert_eq!(root.system().find(rxe), Some(root.path(&path)));
        }
    }

    #[test]
    fn a_busybox_that_needs_libraries_does_not_count() {
        const LOAD: u32 = 1;
        const INTERPRETER: u32 = 3;
        let root = Root::new();
        root.executable("usr/bin/busybox", elf(&[LOAD, INTERPRETER, LOAD]));
        assert_eq!(root.system().static_busybox(), None);
        root.executable("usr/bin/busybox-static", elf(&[LOAD, LOAD]));
        assert_eq!(root.system().static_busybox(), Some(root.path("usr/bin/busybox-static")));
    }

    #[test]
    fn what_is_no_program_of_this_kind_of_machine_is_no_busybox() {
        let root = Root::new();
        let whole = elf(&[1, 1]);
        let mut narrow = whole.clone();
        narrow[4] = 1;
        for content in [&b""[..], b"#!/bin/sh\n", &narrow, &whole[..20], &whole[..whole.len() - 56]] {
            root.executable("usr/bin/busybox", content);
            assert_eq!(root.system().static_busybox(), None, "{content:?}");
        }
        root.executable("usr/bin/busybox", &whole);
        assert!(root.system().static_busybox().is_some());
    }

    #[test]
    fn rustups_stand_in_is_not_the_component() {
        let root = Root::new();
        root.program("home/bin/rustfmt").program("toolchain/bin/cargo");
        let (home, cargo) = (root.path("home/bin"), root.path("toolchain/bin/cargo"));
        let system = root.system_with([("PATH", &home), ("CARGO", &cargo)]);
        assert_eq!(system.find(&Probe::Toolchain("rustfmt")), None);
        root.program("toolchain/bin/rustfmt");
        assert_eq!(system.find(&Probe::Toolchain("rustfmt")), Some(root.path("toolchain/bin/rustfmt")));
        let alone = root.system_with([("PATH", &home)]);
        assert_eq!(alone.find(&Probe::Toolchain("rustfmt")), Some(root.path("home/bin/rustfmt")));
    }

    #[test]
    fn a_link_to_nothing_is_not_there() {
        let root = Root::new();
        root.file("usr/lib/keep", "");
        std::os::unix::fs::symlink("nothing", root.path("usr/lib/libclang.so")).expect("a link can be made");
        assert_eq!(root.system().find(&Probe::Libclang), None);
    }
}
