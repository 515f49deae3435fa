//! What this crate binds and where it comes from.

use crate::failure::Packages;
use crate::find::Library;
use crate::generate::Bound;

pub(crate) const IBVERBS: Library = Library {
    pkg_config: "libibverbs",
    link: "ibverbs",
    header: "infiniband/verbs.h",
    include_var: "IBVERBS_INCLUDE_DIR",
    lib_var: "IBVERBS_LIB_DIR",
    sibling_vars: None,
    packages: Packages {
        apt: "libibverbs-dev",
        dnf: "rdma-core-devel",
        pacman: "rdma-core",
        zypper: "rdma-core-devel",
    },
};

pub(crate) const BOUND: Bound = Bound {
    // `verbs_api.h` and `ib_user_ioctl_verbs.h` are parts of `verbs.h`.
    headers: r".*/infiniband/(verbs|verbs_api|ib_user_ioctl_verbs|sa|opcode)\.h",
    foreign_headers: &[],
    bit_sets: "(ibv|ib_uverbs)_.*_(mask|flags2?|flag|bits|caps|fields)|ibv_pci_atomic_op_size|ibv_placement_type|\
        ib_uverbs_core_support|(ibv|ib_uverbs)_qp_attach_comp_cntr_op",
    left_out: &[
        // C code that calls these gets a macro of the same name: `src/macros.rs` has what the macro does.
        "ibv_query_port",
        "ibv_reg_mr",
        "ibv_reg_mr_iova",
        // Exported only for rdma-core's own tools, under a version that changes: see `src/opcode_names.rs`.
        "ibv_wr_opcode_str",
        // A macro that bindgen understands in some releases only: `src/aliases.rs` has it for all.
        "IBV_ACCESS_OPTIONAL_FIRST",
        // Plain integers in C: `src/byte_order.rs` says what the names mean.
        "__be16",
        "__be32",
        "__be64",
    ],
    shim_suffix: "__ibverbs_sys",
    shims: "ibverbs_sys_shims",
};
