//! Runs bindgen over the headers.

use std::panic;
use std::path::{Path, PathBuf};

use bindgen::callbacks::{DeriveTrait, ImplementsTrait, ParseCallbacks};
use bindgen::{Builder, EnumVariation, Formatter};

use crate::env;
use crate::failure;
use crate::find::Installed;

/// Appended to the name of an inline function to make its shim's.
const SHIM_SUFFIX: &str = "__ibverbs_sys";

/// The headers whose declarations are bound.
const BOUND: [&str; 5] = ["verbs", "verbs_api", "ib_user_ioctl_verbs", "sa", "opcode"];

/// Enums that are sets of bits.
const BITS: &str = "(ibv|ib_uverbs)_.*_(mask|flags2?|bits|caps|fields)|ibv_pci_atomic_op_size|ibv_placement_type|\
    ib_uverbs_advise_mr_flag";

/// Generates `bindings.rs` and returns the C file with the shims of the inline functions.
pub(crate) fn generate(installed: &Installed) -> PathBuf {
    check_libclang();
    let out = env::out_dir();
    let wrappers = out.join("inline_functions.c");
    let header = Path::new(&env::cargo("CARGO_MANIFEST_DIR")).join("shims/headers.h");
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=shims");

    let mut builder = bindgen::builder()
        .header(path(&header))
        .clang_args(installed.include_dirs.iter().map(|dir| format!("-I{}", dir.display())))
        .formatter(Formatter::Prettyplease)
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap_or_else(|_| panic!("bindgen knows Rust 1.85")))
        .layout_tests(false)
        .derive_default(false)
        .impl_debug(true)
        .generate_cstr(true)
        .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false })
        .bitfield_enum(BITS)
        // An enum without a name is matched by its members' names: plain integers.
        .constified_enum("[A-Z][A-Z0-9_]*")
        .wrap_static_fns(true)
        .wrap_static_fns_path(&wrappers)
        .wrap_static_fns_suffix(SHIM_SUFFIX)
        .parse_callbacks(Box::new(Callbacks));
    for name in BOUND {
        builder = builder.allowlist_file(format!(".*/infiniband/{name}\\.h"));
    }
    builder = block(builder);
    for variable in ["BINDGEN_EXTRA_CLANG_ARGS", "LIBCLANG_PATH", "CLANG_PATH"] {
        env::var(variable);
    }
    match builder.generate() {
        Ok(bindings) => bindings
            .write_to_file(out.join("bindings.rs"))
            .unwrap_or_else(|error| failure::stop(&format!("cannot write {}: {error}", out.display()))),
        Err(error) => failure::stop(&error.to_string()),
    }
    wrappers
}

fn block(builder: Builder) -> Builder {
    builder
        // C code that calls these gets a macro of the same name: `src/macros.rs` has what the macro does.
        .blocklist_function("ibv_query_port|ibv_reg_mr|ibv_reg_mr_iova")
        // An alias that is a constant in some releases only: `src/aliases.rs` has it in all.
        .blocklist_item("IBV_ACCESS_OPTIONAL_FIRST")
        // Exported only for rdma-core's own tools, under a version that changes: see `src/opcode_names.rs`.
        .blocklist_function("ibv_wr_opcode_str")
        // The system's types are the `libc` crate's.
        .blocklist_type(
            "pthread_.*|__pthread.*|__atomic_wide_counter|timespec|__time_t|__syscall_slong_t|s?size_t|__ssize_t",
        )
        // Plain integers in C; `src/byte_order.rs` says what the names mean.
        .blocklist_type("__be(16|32|64)")
}

fn check_libclang() {
    panic::set_hook(Box::new(|_| ()));
    let answer = panic::catch_unwind(bindgen::clang_version);
    drop(panic::take_hook());
    if answer.is_err() {
        failure::missing(
            "libclang, which reads the C headers, was not found.",
            &failure::LIBCLANG,
            "or set LIBCLANG_PATH to the folder that has libclang.so.",
        );
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap_or_else(|| failure::stop(&format!("{} is not valid UTF-8", path.display())))
}

#[derive(Debug)]
struct Callbacks;

impl ParseCallbacks for Callbacks {
    /// What the `libc` crate's types can do. Not to be copied: a lock works only where it was made.
    fn blocklisted_type_implements_trait(&self, name: &str, wanted: DeriveTrait) -> Option<ImplementsTrait> {
        let is_lock = name.contains("pthread");
        let can = match wanted {
            DeriveTrait::Debug => true,
            DeriveTrait::Copy => !is_lock,
            _ => false,
        };
        Some(if can { ImplementsTrait::Yes } else { ImplementsTrait::No })
    }

    /// C comments are not Markdown: shown as they were written.
    fn process_comment(&self, comment: &str) -> Option<String> {
        Some(format!("```text\n{}\n```", comment.trim().replace("```", "'''")))
    }
}
