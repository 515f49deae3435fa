//! What `ibverbs-sys` says of the rdma-core it found. librdmacm is of the same release: the two come from one source.

use std::path::PathBuf;

use crate::env;

/// Where `infiniband/verbs.h` is, unless the compiler finds it by itself.
pub(crate) fn include_dirs() -> Vec<PathBuf> {
    std::env::split_paths(&env::cargo("DEP_IBVERBS_INCLUDE")).filter(|dir| !dir.as_os_str().is_empty()).collect()
}

/// The cfgs of `ibverbs-sys`.
pub(crate) fn print_cfgs() {
    for name in names("DEP_IBVERBS_ALL_CFGS") {
        println!("cargo::rustc-check-cfg=cfg({name})");
    }
    for name in names("DEP_IBVERBS_CFGS") {
        println!("cargo::rustc-cfg={name}");
    }
}

/// The same for the crates that depend on this one.
pub(crate) fn print_metadata() {
    for key in ["VERSION", "CFGS", "ALL_CFGS"] {
        println!("cargo::metadata={key}={}", env::cargo(&format!("DEP_IBVERBS_{key}")));
    }
}

fn names(variable: &str) -> Vec<String> {
    env::cargo(variable).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
