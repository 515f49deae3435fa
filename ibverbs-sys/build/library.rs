//! What this crate binds and where it comes from.

use crate::failure::Packages;
use crate::find::Library;

pub(crate) const IBVERBS: Library = Library {
    pkg_config: "libibverbs",
    link: "ibverbs",
    header: "infiniband/verbs.h",
    include_var: "IBVERBS_INCLUDE_DIR",
    lib_var: "IBVERBS_LIB_DIR",
    packages: Packages {
        apt: "libibverbs-dev",
        dnf: "rdma-core-devel",
        pacman: "rdma-core",
        zypper: "rdma-core-devel",
    },
};
