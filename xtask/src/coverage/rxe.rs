//! What rxe, on which the tests run, does not have: there the device tests are of the error.

/// Whether rxe of the kernels 6.1 and 6.12, or its provider, lacks it.
pub(crate) fn lacks(function: &str) -> bool {
    LACKS.contains(&function)
}

const LACKS: &[&str] = &[
    "ibv_advise_mr",
    "ibv_alloc_dm",
    "ibv_alloc_null_mr",
    "ibv_alloc_parent_domain",
    "ibv_alloc_td",
    "ibv_attach_counters_point_flow",
    "ibv_close_xrcd",
    "ibv_create_counters",
    "ibv_create_flow",
    "ibv_create_flow_action_esp",
    "ibv_create_rwq_ind_table",
    "ibv_create_wq",
    "ibv_dealloc_td",
    "ibv_destroy_counters",
    "ibv_destroy_flow",
    "ibv_destroy_flow_action",
    "ibv_destroy_rwq_ind_table",
    "ibv_destroy_wq",
    "ibv_free_dm",
    "ibv_get_srq_num",
    "ibv_import_device",
    "ibv_import_dm",
    "ibv_import_mr",
    "ibv_import_pd",
    "ibv_memcpy_from_dm",
    "ibv_memcpy_to_dm",
    "ibv_modify_cq",
    "ibv_modify_flow_action_esp",
    "ibv_modify_qp_rate_limit",
    "ibv_modify_wq",
    "ibv_open_qp",
    "ibv_open_xrcd",
    "ibv_query_ece",
    "ibv_query_port_speed",
    "ibv_query_rt_values_ex",
    "ibv_read_counters",
    "ibv_reg_dm_mr",
    "ibv_reg_dmabuf_mr",
    "ibv_rereg_mr",
    "ibv_set_ece",
    "ibv_unimport_dm",
    "ibv_unimport_mr",
    "ibv_unimport_pd",
    "ibv_wc_read_completion_ts",
    "ibv_wc_read_completion_wallclock_ns",
    "ibv_wc_read_cvlan",
    "ibv_wc_read_flow_tag",
    "ibv_wr_atomic_write",
    "ibv_wr_flush",
];

/// The function that makes what a destructor destroys.
pub(crate) fn creator(destructor: &str) -> Option<String> {
    const PAIRS: &[(&str, &str)] = &[
        ("_destroy_flow_action", "_create_flow_action_esp"),
        ("_free_device_list", "_get_device_list"),
        ("_free_devices", "_get_devices"),
        ("_freeaddrinfo", "_getaddrinfo"),
        ("_close_", "_open_"),
        ("_dealloc_", "_alloc_"),
        ("_dereg_", "_reg_"),
        ("_destroy_", "_create_"),
        ("_free_", "_alloc_"),
        ("_unimport_", "_import_"),
    ];
    let (end, beginning) = PAIRS.iter().find(|(end, _)| destructor.contains(end))?;
    Some(destructor.replacen(end, beginning, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destructor_has_a_creator() {
        for (destructor, expected) in [
            ("ibv_destroy_qp", "ibv_create_qp"),
            ("ibv_dealloc_pd", "ibv_alloc_pd"),
            ("ibv_free_dm", "ibv_alloc_dm"),
            ("ibv_free_device_list", "ibv_get_device_list"),
            ("ibv_destroy_flow_action", "ibv_create_flow_action_esp"),
            ("ibv_close_xrcd", "ibv_open_xrcd"),
            ("rdma_freeaddrinfo", "rdma_getaddrinfo"),
        ] {
            assert_eq!(creator(destructor).as_deref(), Some(expected));
        }
        assert_eq!(creator("ibv_post_send"), None);
    }
}
