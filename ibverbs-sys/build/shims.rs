//! Compiles the C side: a function for each inline function and each macro.

use std::fs;
use std::path::{Path, PathBuf};

use crate::env;
use crate::failure;
use crate::find::Installed;
use crate::generate::{self, Bound};

/// Compiles `inline_functions`, which bindgen wrote, and the crate's own `shims/*.c`.
pub(crate) fn compile(bound: &Bound, inline_functions: &Path, installed: &Installed) {
    // The compiler reads these too.
    for variable in ["CPATH", "C_INCLUDE_PATH"] {
        env::var(variable);
    }
    let mut build = cc::Build::new();
    if let Some(argument) = generate::sysroot_argument() {
        build.flag(argument);
    }
    let result = build
        .file(inline_functions)
        .files(own_files())
        .includes(&installed.include_dirs)
        // They are on the data path: optimized in debug builds too.
        .opt_level(2)
        .warnings(false)
        .try_compile(bound.shims);
    if let Err(error) = result {
        failure::missing(&format!("the C compiler failed: {error}"), &failure::C, "");
    }
}

fn own_files() -> Vec<PathBuf> {
    let folder = Path::new(&env::cargo("CARGO_MANIFEST_DIR")).join("shims");
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| failure::stop(&format!("{}: {error}", folder.display())));
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    files.sort();
    files
}
