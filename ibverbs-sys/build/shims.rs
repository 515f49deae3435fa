//! Compiles the C side: a function for each inline function and each macro.

use std::path::Path;

use crate::failure;
use crate::find::Installed;

/// Compiles `wrappers`, which bindgen wrote, and our own shims.
pub(crate) fn compile(wrappers: &Path, installed: &Installed) {
    let result = cc::Build::new()
        .file(wrappers)
        .file("shims/macros.c")
        .includes(&installed.include_dirs)
        // They are on the data path: optimized in debug builds too.
        .opt_level(2)
        .warnings(false)
        .try_compile("ibverbs_sys_shims");
    if let Err(error) = result {
        failure::missing(&format!("the C compiler failed: {error}"), &failure::C_COMPILER, "");
    }
}
