//! What this crate binds and where it comes from.

use crate::failure::Packages;
use crate::find::Library;
use crate::generate::Bound;

pub(crate) const RDMACM: Library = Library {
    pkg_config: "librdmacm",
    link: "rdmacm",
    header: "rdma/rdma_cma.h",
    include_var: "RDMACM_INCLUDE_DIR",
    lib_var: "RDMACM_LIB_DIR",
    // Both libraries are parts of rdma-core, so who has one of his own has the other beside it.
    sibling_vars: Some(["IBVERBS_INCLUDE_DIR", "IBVERBS_LIB_DIR"]),
    packages: Packages { apt: "librdmacm-dev", dnf: "rdma-core-devel", pacman: "rdma-core", zypper: "rdma-core-devel" },
};

pub(crate) const BOUND: Bound = Bound {
    headers: r".*/(rdma/(rdma_cma|rdma_verbs|rsocket)|infiniband/ib)\.h",
    // These are `ibverbs-sys`'s.
    foreign_headers: &[r".*/infiniband/(verbs|verbs_api|ib_user_ioctl_verbs|sa)\.h", r".*/linux/types\.h"],
    bit_sets: "rdma_cm_join_mc_attr_mask|rdma_cm_mc_join_flags",
    left_out: &[],
    shim_suffix: "__rdmacm_sys",
    shims: "rdmacm_sys_shims",
};
