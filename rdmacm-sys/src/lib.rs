//! Raw bindings to librdmacm.
