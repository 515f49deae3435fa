//! Where the library and its header are: the environment's word first, then pkg-config's.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::env;
use crate::failure::{self, Packages};

/// A C library that a crate binds.
pub(crate) struct Library {
    /// Its name for pkg-config.
    pub(crate) pkg_config: &'static str,
    /// Its name for the linker, without `lib` and `.so`.
    pub(crate) link: &'static str,
    pub(crate) header: &'static str,
    /// The variables that say where header and library are.
    pub(crate) include_var: &'static str,
    pub(crate) lib_var: &'static str,
    /// The same two of a library that may be in the same folders.
    pub(crate) sibling_vars: Option<[&'static str; 2]>,
    pub(crate) packages: Packages,
}

/// A library that was found.
pub(crate) struct Installed {
    pub(crate) library: &'static Library,
    /// Folders to search for headers before the compiler's own.
    pub(crate) include_dirs: Vec<PathBuf>,
    /// Folders to search for libraries before the linker's own.
    pub(crate) lib_dirs: Vec<PathBuf>,
    /// pkg-config's version, where one belongs to the header.
    pub(crate) version: Option<String>,
}

impl Library {
    /// The file that the linker looks for.
    fn file(&self) -> String {
        format!("lib{}.so", self.link)
    }
}

impl Installed {
    /// Links the library, dynamically: it loads its providers with `dlopen`, which a static program cannot do.
    pub(crate) fn print_link_lines(&self) {
        for dir in &self.lib_dirs {
            println!("cargo::rustc-link-search=native={}", dir.display());
        }
        println!("cargo::rustc-link-lib=dylib={}", self.library.link);
    }

    /// Lets the tests ask about the same headers and the same library.
    pub(crate) fn print_for_tests(&self, prefix: &str) {
        println!("cargo::rustc-env={prefix}_INCLUDE_DIRS={}", env::joined(&self.include_dirs));
        println!("cargo::rustc-env={prefix}_LIB_DIRS={}", env::joined(&self.lib_dirs));
    }
}

/// Finds `library`, or ends the build.
pub(crate) fn find(library: &'static Library) -> Installed {
    refuse_static(library);
    let [include_sibling, lib_sibling] = library.sibling_vars.map_or([None; 2], |vars| vars.map(Some));
    let include_dirs = given(library.include_var, include_sibling, library.header);
    let lib_dirs = given(library.lib_var, lib_sibling, &library.file());
    let header_is_given = !include_dirs.is_empty();
    let library_is_given = !lib_dirs.is_empty();
    if header_is_given {
        check_header(library, &include_dirs);
    }
    if library_is_given {
        check_library(library, &lib_dirs);
    }
    let mut installed = Installed { library, include_dirs, lib_dirs, version: None };
    if header_is_given && library_is_given {
        installed.version = installed.lib_dirs.iter().find_map(|dir| version_beside(library, dir));
    } else {
        let found = ask_pkg_config(library);
        if !header_is_given {
            installed.include_dirs = found.include_paths;
            installed.version = Some(found.version);
        }
        if !library_is_given {
            installed.lib_dirs = found.link_paths;
        }
    }
    installed
}

/// The folders that the environment gives: in the library's own variable, or in its sibling's if `file` is there.
fn given(own: &str, sibling: Option<&str>, file: &str) -> Vec<PathBuf> {
    let dirs = env::paths(own);
    if !dirs.is_empty() {
        return dirs;
    }
    let dirs = sibling.map(env::paths).unwrap_or_default();
    if has(&dirs, file) { dirs } else { Vec::new() }
}

fn has(dirs: &[PathBuf], file: &str) -> bool {
    dirs.iter().any(|dir| dir.join(file).is_file())
}

fn refuse_static(library: &Library) {
    let features = env::cargo("CARGO_CFG_TARGET_FEATURE");
    if features.split(',').any(|feature| feature == "crt-static") {
        failure::stop(&format!(
            "{} cannot be linked into a static program for {}: libibverbs loads the driver of each device with dlopen, \
             and a static program would see no device.\n\
             Build for a target with a dynamic C library (such as x86_64-unknown-linux-gnu), or with \
             RUSTFLAGS=\"-C target-feature=-crt-static\" where the target's own libibverbs is installed.",
            library.pkg_config,
            env::cargo("TARGET"),
        ));
    }
}

fn check_header(library: &Library, dirs: &[PathBuf]) {
    if !has(dirs, library.header) {
        let problem = format!("{} is set, but {} is not in {}.", library.include_var, library.header, list(dirs));
        failure::missing(&problem, &library.packages, &format!("or correct {}.", library.include_var));
    }
}

fn check_library(library: &Library, dirs: &[PathBuf]) {
    let file = library.file();
    if !has(dirs, &file) {
        let problem = format!("{} is set, but {file} is not in {}.", library.lib_var, list(dirs));
        failure::missing(&problem, &library.packages, &format!("or correct {}.", library.lib_var));
    }
}

fn list(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(" or ")
}

/// The version in the `.pc` file of a library that was not found through pkg-config.
fn version_beside(library: &Library, lib_dir: &Path) -> Option<String> {
    let file = lib_dir.join("pkgconfig").join(format!("{}.pc", library.pkg_config));
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Version:")).map(|version| version.trim().to_owned())
}

fn ask_pkg_config(library: &Library) -> pkg_config::Library {
    let mut config = pkg_config::Config::new();
    // The link lines come last, from us: they must follow the shims'.
    let answer =
        config.cargo_metadata(false).print_system_cflags(false).print_system_libs(false).probe(library.pkg_config);
    let by_hand = format!("or set {} and {} to the folders where they are.", library.include_var, library.lib_var);
    match answer {
        Ok(found) => found,
        Err(pkg_config::Error::Command { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
            let problem = format!("pkg-config is not installed, so {} cannot be found.", library.pkg_config);
            failure::missing(&problem, &failure::PKG_CONFIG, &by_hand)
        }
        Err(pkg_config::Error::CrossCompilation) => failure::stop(&format!(
            "{name} for {target} cannot be found: pkg-config would answer for this machine ({host}).\n\
             Install the target's package (on Debian {apt}:ARCHITECTURE, such as {apt}:arm64) and set \
             PKG_CONFIG_ALLOW_CROSS=1 with PKG_CONFIG_PATH, and PKG_CONFIG_SYSROOT_DIR if it lives in a sysroot,\n{by_hand}",
            name = library.pkg_config,
            target = env::cargo("TARGET"),
            host = env::cargo("HOST"),
            apt = library.packages.apt,
        )),
        Err(other) => {
            let problem = format!(
                "{} was not found: neither the header {} nor the library is known to pkg-config{}.",
                library.pkg_config,
                library.header,
                reason(&other)
            );
            failure::missing(&problem, &library.packages, &by_hand)
        }
    }
}

/// What pkg-config said beyond "not found".
fn reason(error: &pkg_config::Error) -> String {
    match error {
        pkg_config::Error::EnvNoPkgConfig(name) => format!(", which {name} forbids to ask"),
        pkg_config::Error::Command { command, cause } => format!(" (`{command}`: {cause})"),
        _ => String::new(),
    }
}
