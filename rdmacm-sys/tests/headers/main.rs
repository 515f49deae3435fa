//! The bindings against the headers: what the C compiler says of them, and whether anything is missing.
//!
//! The other files are `ibverbs-sys`'s, through symbolic links.

mod agreement;
mod bindings;
mod c_types;
mod compiler;
mod coverage;
mod symbols;

use std::ffi::c_void;
use std::mem::offset_of;

use agreement::Unnamed;
use bindings::Bindings;
use compiler::Headers;
use coverage::Exceptions;
use rdmacm_sys as ffi;

fn bindings() -> Bindings {
    Bindings::read(include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")))
}

fn headers() -> Headers {
    Headers::read(
        concat!(env!("CARGO_MANIFEST_DIR"), "/shims/headers.h"),
        env!("RDMACM_SYS_INCLUDE_DIRS"),
        &["/rdma/rdma_cma.h", "/rdma/rdma_verbs.h", "/rdma/rsocket.h", "/infiniband/ib.h"],
    )
}

fn unnamed() -> Unnamed {
    Unnamed::from([
        ("rdma_addr.__bindgen_anon_1", offset_of!(ffi::rdma_addr, __bindgen_anon_1)),
        ("rdma_addr.__bindgen_anon_2", offset_of!(ffi::rdma_addr, __bindgen_anon_2)),
    ])
}

#[test]
fn each_struct_has_the_size_and_offsets_and_field_types_the_c_compiler_gives_it() {
    let lines = agreement::of_records(&bindings(), &headers(), &unnamed());
    assert!(lines.len() > 150, "{}", lines.len());
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

#[test]
fn each_enum_has_the_integer_and_the_values_the_c_compiler_gives_it() {
    let lines = agreement::of_enumerations(&bindings(), &headers());
    assert!(lines.len() > 25, "{}", lines.len());
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

#[test]
fn each_enum_of_flags_has_the_operators_of_a_set() {
    assert_eq!(agreement::unlike_sets(&bindings()), [""; 0]);
}

#[test]
fn each_constant_has_the_value_the_c_compiler_gives_it() {
    let lines = agreement::of_constants(&bindings());
    assert!(lines.len() > 20, "{}", lines.len());
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

#[test]
fn each_other_name_of_a_type_is_the_c_compilers() {
    let lines = agreement::of_aliases(&bindings(), &headers());
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

#[test]
fn each_function_has_the_arguments_and_the_result_the_c_compiler_gives_it() {
    let lines = agreement::of_functions(&bindings().functions, &headers());
    assert!(lines.len() > 85, "{}", lines.len());
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

const EXCEPTIONS: Exceptions = Exceptions {
    functions: &[],
    types: &[],
    macros: &[
        ("sib_addr8", "a member's short name: `ib_u.uib_addr8`"),
        ("sib_addr16", "a member's short name: `ib_u.uib_addr16`"),
        ("sib_addr32", "a member's short name: `ib_u.uib_addr32`"),
        ("sib_addr64", "a member's short name: `ib_u.uib_addr64`"),
        ("sib_raw", "a member's short name: `ib_u.uib_addr8`"),
        ("sib_subnet_prefix", "a member's short name: `ib_u.uib_addr64[0]`"),
        ("sib_interface_id", "a member's short name: `ib_u.uib_addr64[1]`"),
    ],
};

#[test]
fn each_public_function_type_constant_and_macro_is_bound() {
    let bindings = bindings();
    let bound: Vec<&str> = bindings.names().collect();
    let headers = headers();
    assert!(headers.declared.functions.len() >= 85, "{}", headers.declared.functions.len());
    assert_eq!(coverage::missing(&headers.declared, &bound, &EXCEPTIONS), [""; 0]);
}

#[test]
fn each_function_that_is_no_shim_is_exported_under_a_public_version() {
    let function: unsafe extern "C" fn() -> *mut ffi::rdma_event_channel = ffi::rdma_create_event_channel;
    let exported =
        symbols::exported("librdmacm.so", env!("RDMACM_SYS_LIB_DIRS"), function as *const c_void, "RDMACM_1.");
    let bindings = bindings();
    let plain = bindings.functions.iter().filter(|function| function.link_name.is_none());
    let missing: Vec<_> =
        plain.filter(|function| !exported.contains(&function.name)).map(|function| &function.name).collect();
    assert_eq!(missing, [""; 0]);
}
