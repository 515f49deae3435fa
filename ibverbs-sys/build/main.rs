//! Finds the installed libibverbs, generates its bindings and compiles the shims for its inline functions.

mod env;
mod failure;
mod find;
mod generate;
mod library;
mod release;
mod shims;

use library::{BOUND, IBVERBS};

fn main() {
    let installed = find::find(&IBVERBS);
    let release = release::of(&installed);
    release.print_cfgs();
    let inline_functions = generate::generate(&BOUND, &installed);
    shims::compile(&BOUND, &inline_functions, &installed);
    // After the shims, which call into the library: a linker with --as-needed drops a library that nothing before it needs.
    installed.print_link_lines();
    release.print_metadata(&installed);
    installed.print_for_tests("IBVERBS_SYS");
}
