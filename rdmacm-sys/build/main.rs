//! Finds the installed librdmacm, generates its bindings and compiles the shims for its inline functions.
//!
//! What does not differ from `ibverbs-sys` is that crate's file, through a symbolic link.

mod env;
mod failure;
mod find;
mod generate;
mod ibverbs;
mod library;
mod shims;

use library::{BOUND, RDMACM};

fn main() {
    let mut installed = find::find(&RDMACM);
    // rdma_cma.h includes infiniband/verbs.h: the one that ibverbs-sys has bound.
    installed.include_dirs.extend(ibverbs::include_dirs());
    ibverbs::print_cfgs();
    let inline_functions = generate::generate(&BOUND, &installed);
    shims::compile(&BOUND, &inline_functions, &installed);
    // After the shims, which call into the library: a linker with --as-needed drops a library that nothing before it needs.
    installed.print_link_lines();
    ibverbs::print_metadata();
    installed.print_for_tests("RDMACM_SYS");
}
