//! Raw bindings to librdmacm.

mod generated;

pub use generated::*;
