//! Runs bindgen over the headers.

use std::panic;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{DeriveTrait, ImplementsTrait, IntKind, ParseCallbacks};
use bindgen::{EnumVariation, Formatter, RustTarget};

use crate::env;
use crate::failure::{self, Packages};
use crate::find::Installed;

/// What a crate binds.
pub(crate) struct Bound {
    /// Headers whose declarations are bound, as a regular expression over their paths.
    pub(crate) headers: &'static str,
    /// Headers whose declarations another crate has bound, likewise.
    pub(crate) foreign_headers: &'static [&'static str],
    /// Enums that are sets of bits.
    pub(crate) bit_sets: &'static str,
    /// What the crate has by hand instead.
    pub(crate) left_out: &'static [&'static str],
    /// Appended to the name of an inline function to make its shim's.
    pub(crate) shim_suffix: &'static str,
    /// The name of the library of shims.
    pub(crate) shims: &'static str,
}

/// Types of the C library, which the `libc` crate has.
const SYSTEM_TYPES: [&str; 4] = [
    r"(_*pthread_\w+|__atomic_wide_counter)(__bindgen_ty_\d+)*",
    "s?size_t|__ssize_t|off_t|__off_t|timespec|timeval|__time_t|__suseconds_t|__syscall_slong_t",
    r"(sockaddr(_in6?|_storage)?|in6?_addr)(__bindgen_ty_\d+)*|in_addr_t|in_port_t|sa_family_t|socklen_t|__socklen_t",
    "msghdr|iovec|pollfd|nfds_t|fd_set|__fd_mask|epoll_event|epoll_data|epoll_data_t",
];

/// Generates `bindings.rs` and returns the C file with the shims of the inline functions.
pub(crate) fn generate(bound: &Bound, installed: &Installed) -> PathBuf {
    load_libclang();
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=shims");

    let out = env::out_dir();
    let shims = out.join("inline_functions.c");
    let header = Path::new(&env::cargo("CARGO_MANIFEST_DIR")).join("shims/headers.h");
    let mut builder = bindgen::builder()
        .header(utf8(&header))
        // Bindgen itself passes on the target.
        .clang_args(installed.include_dirs.iter().map(|dir| format!("-I{}", utf8(dir))))
        .clang_args(sysroot_argument())
        .rust_target(RustTarget::stable(85, 0).unwrap_or_default())
        .formatter(Formatter::Prettyplease)
        .layout_tests(true)
        .derive_default(false)
        .impl_debug(true)
        .generate_cstr(true)
        .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false })
        .bitfield_enum(bound.bit_sets)
        // An enum without a name is matched by its members' names: plain integers.
        .constified_enum("[A-Z][A-Z0-9_]*")
        .allowlist_file(bound.headers)
        .blocklist_type(SYSTEM_TYPES.join("|"))
        .wrap_static_fns(true)
        .wrap_static_fns_path(&shims)
        .wrap_static_fns_suffix(bound.shim_suffix)
        .parse_callbacks(Box::new(Callbacks))
        // Tells cargo of each header and each variable that bindgen reads.
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()));
    for name in bound.left_out {
        builder = builder.blocklist_item(name);
    }
    for header in bound.foreign_headers {
        builder = builder.blocklist_file(header);
    }
    let bindings = builder.generate().unwrap_or_else(|error| explain(&error.to_string(), &installed.library.packages));
    let file = out.join("bindings.rs");
    if let Err(error) = bindings.write_to_file(&file) {
        failure::stop(&format!("{} cannot be written: {error}", file.display()));
    }
    shims
}

/// The target's headers are in pkg-config's sysroot, if there is one: never take the host's instead.
pub(crate) fn sysroot_argument() -> Option<String> {
    env::for_target("PKG_CONFIG_SYSROOT_DIR").map(|sysroot| format!("--sysroot={sysroot}"))
}

/// Bindgen would panic where libclang is not there.
fn load_libclang() {
    for variable in ["LIBCLANG_PATH", "LLVM_CONFIG_PATH", "CLANG_PATH"] {
        env::var(variable);
    }
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let answer = panic::catch_unwind(bindgen::clang_version);
    panic::set_hook(hook);
    if answer.is_err() {
        failure::missing(
            "libclang, which reads the C headers, was not found.",
            &failure::LIBCLANG,
            "or set LIBCLANG_PATH to the folder that has libclang.so.",
        );
    }
}

/// Ends the build with the remedy for what libclang could not read.
fn explain(error: &str, packages: &Packages) -> ! {
    /// Headers that belong to the compiler, not to the system.
    const COMPILER_HEADERS: [&str; 4] = ["stddef.h", "stdarg.h", "stdbool.h", "limits.h"];
    let Some(missing) = missing_header(error) else {
        failure::stop(&format!("bindgen cannot read the headers: {error}"));
    };
    if COMPILER_HEADERS.contains(&missing) {
        let problem = format!("libclang was found without its own headers: {missing} is missing.");
        failure::missing(&problem, &failure::LIBCLANG, "");
    }
    let packages =
        if ["infiniband/", "rdma/"].iter().any(|folder| missing.starts_with(folder)) { packages } else { &failure::C };
    failure::missing(&format!("the header {missing} was not found."), packages, "")
}

/// The header in clang's `fatal error: 'HEADER' file not found`.
fn missing_header(error: &str) -> Option<&str> {
    let (before, _) = error.split_once("' file not found")?;
    before.rsplit_once('\'').map(|(_, header)| header)
}

fn utf8(path: &Path) -> &str {
    path.to_str().unwrap_or_else(|| failure::stop(&format!("the path {} is not valid UTF-8", path.display())))
}

#[derive(Debug)]
struct Callbacks;

impl ParseCallbacks for Callbacks {
    /// What types from elsewhere can do. A lock works only where it was made, so it and what holds it cannot be copied.
    fn blocklisted_type_implements_trait(&self, name: &str, wanted: DeriveTrait) -> Option<ImplementsTrait> {
        let can = match wanted {
            DeriveTrait::Debug => true,
            DeriveTrait::Copy => !name.contains("pthread"),
            _ => false,
        };
        Some(if can { ImplementsTrait::Yes } else { ImplementsTrait::No })
    }

    /// Bindgen would make the smallest type of the value that fits, and a negative one of the highest bit.
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        name.starts_with("RDMA_IB_").then_some(IntKind::U64)
    }

    /// C comments are not Markdown: they are shown as they were written.
    fn process_comment(&self, comment: &str) -> Option<String> {
        Some(format!("```text\n{}\n```", comment.trim().replace("```", "'''")))
    }
}
