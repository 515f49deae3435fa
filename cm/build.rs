//! Hands on the cfgs of the installed release of rdma-core, such as `rdma_core_62`, which `rdmacm-sys` found out.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in names("DEP_RDMACM_ALL_CFGS") {
        println!("cargo::rustc-check-cfg=cfg({name})");
    }
    for name in names("DEP_RDMACM_CFGS") {
        println!("cargo::rustc-cfg={name}");
    }
}

fn names(variable: &str) -> Vec<String> {
    let list = env::var(variable).unwrap_or_default();
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
