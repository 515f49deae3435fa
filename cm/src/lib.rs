//! Safe RDMA connection management over librdmacm: connecting by IP address instead of exchanging queue pair numbers by hand.
//!
//! **There is nothing here yet.** The crate holds the place of the safe layer over [`rdmacm_sys`], and will hand out ordinary
//! [`verbs`] queue pairs. Until then:
//!
//! * connect queue pairs by exchanging a [`verbs::Endpoint`] over a channel of your own, such as TCP; the example
//!   `rc_pingpong` shows how;
//! * or call librdmacm through [`ffi`], which has all of `rdma/rdma_cma.h`.
#![deny(unsafe_code)]

/// The raw bindings.
pub use rdmacm_sys as ffi;
