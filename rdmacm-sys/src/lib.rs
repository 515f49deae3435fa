//! Raw bindings to librdmacm, the library that connects queue pairs by IP addresses.
//!
//! They are made when the crate is built, from the headers that are installed: `rdma/rdma_cma.h`, the helpers of `rdma/rdma_verbs.h`,
//! sockets over RDMA (`rdma/rsocket.h`) and `infiniband/ib.h`. What a name means is in its manual page, such as
//! [rdma_connect(3)](https://man7.org/linux/man-pages/man3/rdma_connect.3.html).
//!
//! ```
//! use rdmacm_sys::{rdma_cm_event_type, rdma_event_str};
//!
//! // SAFETY: the names are constants of the library.
//! let name = unsafe { std::ffi::CStr::from_ptr(rdma_event_str(rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED)) };
//! assert_eq!(name, c"RDMA_CM_EVENT_ESTABLISHED");
//! ```
//!
//! All is as in [`ibverbs_sys`], whose types these functions take: names, enums, structs, and the inline functions, which are shims here
//! too (those of `rdma_verbs.h`, [`rdma_get_local_addr`] and [`rdma_get_peer_addr`], and the four that compare and set an [`ib_addr`]).
//! The assertions in them hold in every build, as in a C program built without `NDEBUG`: [`rdma_post_recv`] ends the program if the range
//! is not in the memory region.
//!
//! An id and an event lie inside larger structs of the library: only pointers to them may be passed on, never copies.
//!
//! # Threads
//!
//! The library may be called from several threads at once. [`rdma_destroy_id`] waits until every event of the id has been acknowledged,
//! so a thread that holds an event must not call it.
//!
//! # Building
//!
//! What `ibverbs-sys` needs, and librdmacm with its headers: `librdmacm-dev` (apt), `rdma-core-devel` (dnf, zypper), `rdma-core` (pacman).
//! `RDMACM_INCLUDE_DIR` and `RDMACM_LIB_DIR` name the folders of the header and of the library, and then pkg-config is not asked. Where
//! they are not set, the folders in `IBVERBS_INCLUDE_DIR` and `IBVERBS_LIB_DIR` are taken, if librdmacm is there as well.
//!
//! The cfgs are those of `ibverbs-sys`, and a crate that depends on this one gets them as `DEP_RDMACM_VERSION`, `DEP_RDMACM_CFGS` and
//! `DEP_RDMACM_ALL_CFGS`. Release 60 added [`rdma_cm_event_type`]'s last four events, `rdma_resolve_addrinfo`, `rdma_query_addrinfo` and
//! `rdma_write_cm_event`; release 65 `repoll_create`, `repoll_ctl` and `repoll_wait`.

mod generated;

pub use generated::*;
