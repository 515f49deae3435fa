//! What bindgen made of the headers.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    rustdoc::all,
    clippy::all,
    clippy::doc_markdown,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks
)]

use libc::{pthread_cond_t, pthread_mutex_t, timespec};

use crate::{__be16, __be32, __be64};

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
