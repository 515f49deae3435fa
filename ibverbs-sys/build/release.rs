//! Which release of rdma-core is installed, and the cfgs that follow from it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::env;
use crate::failure;
use crate::find::Installed;

/// The releases that added something to the header, each with a word that only it and later ones have.
///
/// `rdma_core_45` is set when the installed release is 45 or later, and so on. What each one brought:
///
/// | release | new |
/// |---|---|
/// | 45 | flush: `ibv_wr_flush`, `IBV_WR_FLUSH`, `IBV_QP_EX_WITH_FLUSH`, the placement and selectivity types |
/// | 46 | `ibv_query_qp_data_in_order_flags`, `ibv_query_qp_data_in_order_caps` |
/// | 49 | `active_speed_ex`, `ibv_wr_opcode_str` |
/// | 58 | on-demand paging for flush and atomic write |
/// | 59 | `ibv_reg_mr_ex`, `ibv_alloc_dmah` |
/// | 60 | `rdma_resolve_addrinfo`, `rdma_query_addrinfo`, `rdma_write_cm_event` |
/// | 62 | `ibv_query_port_speed`, `ibv_dm_export_dmabuf_fd` |
/// | 64 | `ibv_alloc_buf`, `ibv_free_buf`, `ibv_reg_buf_mr` |
/// | 65 | completion counters: `ibv_create_comp_cntr` and its like, `ibv_export_buf_dmabuf_fd` |
///
/// What is new in release 60 is librdmacm's; of `verbs.h` only `IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY`.
const RELEASES: [(u32, &str); 9] = [
    (45, "ibv_wr_flush"),
    (46, "ibv_query_qp_data_in_order_flags"),
    (49, "active_speed_ex"),
    (58, "IBV_ODP_SUPPORT_FLUSH"),
    (59, "ibv_reg_mr_ex"),
    (60, "IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY"),
    (62, "ibv_query_port_speed"),
    (64, "ibv_alloc_buf"),
    (65, "ibv_create_comp_cntr"),
];

/// The oldest release whose header has every name that the crates use unconditionally.
const OLDEST: u32 = 44;

/// Where compilers look by themselves.
const USUAL_FOLDERS: [&str; 2] = ["/usr/local/include", "/usr/include"];

/// A release of rdma-core.
pub(crate) struct Release(u32);

/// The release that `installed` belongs to. One that is too old ends the build.
pub(crate) fn of(installed: &Installed) -> Release {
    let told = installed.version.as_deref().and_then(from_version);
    let release = told.unwrap_or_else(|| from_header(installed));
    if release < OLDEST {
        failure::stop(&format!(
            "rdma-core {release} is installed, and these bindings need release {OLDEST} or later.\n\
             Install a newer one, and set {} and {} to its folders if it is not the system's.",
            installed.library.include_var, installed.library.lib_var,
        ));
    }
    Release(release)
}

/// pkg-config's `1.14.44.0` is release 44: the first two numbers name the newest set of symbols.
fn from_version(version: &str) -> Option<u32> {
    version.split('.').nth(2)?.parse().ok()
}

/// Without pkg-config, the newest release whose word the header has; what lies between two of them looks the same.
fn from_header(installed: &Installed) -> u32 {
    let folders = installed.include_dirs.iter().map(PathBuf::as_path).chain(USUAL_FOLDERS.map(Path::new));
    let mut paths = folders.map(|folder| folder.join(installed.library.header));
    let text = paths.find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let known = RELEASES.iter().rev().find(|(_, word)| text.contains(word));
    known.map_or(OLDEST, |(release, _)| *release)
}

impl Release {
    fn cfgs(&self) -> Vec<String> {
        RELEASES.iter().filter(|(release, _)| *release <= self.0).map(|(release, _)| cfg(*release)).collect()
    }

    /// Declares every cfg and sets those that hold.
    pub(crate) fn print_cfgs(&self) {
        for (release, _) in RELEASES {
            println!("cargo::rustc-check-cfg=cfg({})", cfg(release));
        }
        for name in self.cfgs() {
            println!("cargo::rustc-cfg={name}");
        }
    }

    /// What the crates that depend on this one get to know, as `DEP_IBVERBS_*`.
    pub(crate) fn print_metadata(&self, installed: &Installed) {
        println!("cargo::metadata=VERSION={}", self.0);
        println!("cargo::metadata=CFGS={}", self.cfgs().join(","));
        println!("cargo::metadata=ALL_CFGS={}", RELEASES.map(|(release, _)| cfg(release)).join(","));
        println!("cargo::metadata=INCLUDE={}", env::joined(&installed.include_dirs));
    }
}

fn cfg(release: u32) -> String {
    format!("rdma_core_{release}")
}
