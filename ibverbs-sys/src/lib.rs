//! Raw bindings to libibverbs.
