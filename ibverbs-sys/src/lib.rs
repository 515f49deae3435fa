//! Raw bindings to libibverbs, the library through which programs use RDMA devices.
//!
//! They are made when the crate is built, from the `infiniband/verbs.h` that is installed (with `infiniband/sa.h` and
//! `infiniband/opcode.h`), so they have what that release of rdma-core has: every function, type and constant.
//! Tested releases are 44, 56 and 65. What a name means is in its manual page, such as
//! [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html).
//!
//! ```
//! let mut count = 0;
//! // SAFETY: the list is ended by a null pointer, and freed once.
//! unsafe {
//!     let list = ibverbs_sys::ibv_get_device_list(&mut count);
//!     if !list.is_null() {
//!         for index in 0..count as usize {
//!             let name = ibverbs_sys::ibv_get_device_name(*list.add(index));
//!             println!("{}", std::ffi::CStr::from_ptr(name).to_string_lossy());
//!         }
//!         ibverbs_sys::ibv_free_device_list(list);
//!     }
//! }
//! ```
//!
//! # Names
//!
//! Everything is at the root of the crate, under its C name.
//!
//! * **An enum is an open integer**: `ibv_wc_status(pub u32)`, with the members as associated constants, such as
//!   [`ibv_wc_status::IBV_WC_SUCCESS`]. A value that the header does not name, from a newer driver, is a value like any other. An enum
//!   of flags, such as [`ibv_access_flags`], has the operators of a set of bits besides.
//! * **Members of an enum without a name** are plain integers: [`IBV_LINK_LAYER_ETHERNET`].
//! * **Members without a name** are in fields called `__bindgen_anon_1` and so on: the immediate data of an [`ibv_wc`] is
//!   `wc.__bindgen_anon_1.imm_data`. Types without a name are called after where they are: [`ibv_send_wr__bindgen_ty_2`].
//! * `Debug` shows the whole of a struct without unions. Of one with a union, such as [`ibv_wc`], it shows some fields only.
//! * **A struct may be made of zeros**, and C programs do so: `std::mem::zeroed()` is sound for each of them.
//! * **Integers in network order** are of the types [`__be16`], [`__be32`] and [`__be64`], which only say so.
//! * Types of the C library are those of the `libc` crate.
//!
//! What a struct hides from the program ends where the header does: a context lies inside a larger struct of the library, as do queue
//! pairs, completion queues and memory regions. Only pointers to them may be passed on, never copies.
//!
//! # Inline functions and macros
//!
//! What a C program calls is to a large part not in the library: [`ibv_post_send`], [`ibv_poll_cq`], the builders of an extended queue
//! pair ([`ibv_wr_start`] and the like), the readers of an extended completion queue ([`ibv_start_poll`] and the like), and some hundred
//! more are inline functions in the header. Each is here as a function like any other: a shim, compiled from the header by the C
//! compiler, optimized in debug builds too. A shim costs one jump.
//!
//! Three functions of the library are hidden from C programs by macros of the same name. Here the name is the macro:
//! [`ibv_query_port`] fills the whole of an [`ibv_port_attr`], and [`ibv_reg_mr`] and [`ibv_reg_mr_iova`] accept the optional access
//! flags. [`verbs_get_ctx_op!`] and [`vext_field_avail!`] are macros here as well. [`ibv_wr_opcode_str`] is written in Rust, since the
//! library's may not be linked.
//!
//! An inline function that calls through a table may find nothing there. Most of those that take a context or what belongs to one then say
//! `EOPNOTSUPP`: functions that return a pointer in `errno`, the others as their result. The operations of an extended queue pair or
//! completion queue are not checked, as in C: one that was not asked for when the queue was made is a null pointer, and calling it ends
//! the program.
//!
//! # Threads
//!
//! The library may be called from several threads at once, on the same objects too, but for destroying one that another thread uses. An
//! extended queue pair between `ibv_wr_start` and `ibv_wr_complete`, and an extended completion queue between `ibv_start_poll` and
//! `ibv_end_poll`, are held by the one thread. After a `fork` see `ibv_fork_init`.
//!
//! # Building
//!
//! What is needed, by package:
//!
//! | | apt | dnf | pacman | zypper |
//! |---|---|---|---|---|
//! | libibverbs and its headers | `libibverbs-dev` | `rdma-core-devel` | `rdma-core` | `rdma-core-devel` |
//! | pkg-config | `pkg-config` | `pkgconf-pkg-config` | `pkgconf` | `pkg-config` |
//! | libclang, for bindgen | `libclang-dev` | `clang-devel` | `clang` | `clang-devel` |
//! | a C compiler | `gcc libc6-dev` | `gcc glibc-devel` | `gcc` | `gcc glibc-devel` |
//!
//! * `IBVERBS_INCLUDE_DIR` and `IBVERBS_LIB_DIR` name the folders of the header and of the library, and then pkg-config is not asked.
//! * `LIBCLANG_PATH` and `BINDGEN_EXTRA_CLANG_ARGS` are bindgen's, `CC` and `CFLAGS` the C compiler's, `PKG_CONFIG_PATH` and its like
//!   pkg-config's.
//! * To build for another architecture, install the target's library (on Debian, `libibverbs-dev:arm64`) and C compiler, and set
//!   `PKG_CONFIG_ALLOW_CROSS=1` and `PKG_CONFIG_PATH`; with a sysroot, `PKG_CONFIG_SYSROOT_DIR` as well, which libclang is told too.
//! * The library is always linked dynamically. It loads the driver of each device with `dlopen`; a static program would see no device,
//!   and is refused.
//!
//! # Releases
//!
//! Release 44 is the oldest that the crate accepts. The cfg `rdma_core_45` is set when the headers are of release 45 of rdma-core or
//! later, and so are `rdma_core_46`, `rdma_core_49`, `rdma_core_58`, `rdma_core_59`, `rdma_core_60`, `rdma_core_62`, `rdma_core_64` and
//! `rdma_core_65`; the table in `build/release.rs` says what each brought. A crate that depends on this one finds in the environment of
//! its build script:
//!
//! | variable | value |
//! |---|---|
//! | `DEP_IBVERBS_VERSION` | the release: `44` |
//! | `DEP_IBVERBS_CFGS` | the cfgs that are set, with commas between them |
//! | `DEP_IBVERBS_ALL_CFGS` | all of the cfgs, to declare them with `cargo::rustc-check-cfg` |
//! | `DEP_IBVERBS_INCLUDE` | folders to search for the headers, in the form of `PATH`; none, if the C compiler finds them by itself |
//!
//! A program may run with an older library than it was built with, as long as it calls nothing that is newer: the library's functions have
//! versions, and a table says how long it is. The exception is [`ibv_qp_ex`], which does not: an operation that is newer than the library
//! may be called only if the queue pair was made with the flag that asks for it.

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
