//! Raw bindings to libibverbs.

mod aliases;
mod byte_order;
mod generated;
mod macros;
mod opcode_names;

pub use aliases::*;
pub use byte_order::*;
pub use generated::*;
pub use macros::*;
pub use opcode_names::*;
