//! Why a function is not wrapped, or not tested.

/// The reason. `None`: there is none, so it has to be.
pub(crate) fn of(function: &str) -> Option<&'static str> {
    REASONS.iter().find(|(names, _)| names.contains(&function)).map(|(_, reason)| *reason)
}

const REASONS: &[(&[&str], &str)] = &[
    (
        &["ibv_event_type_str", "ibv_node_type_str", "ibv_port_state_str", "ibv_wc_status_str", "ibv_wr_opcode_str"],
        "the `Display` of our types has texts of its own",
    ),
    (&["ibv_rate_to_mbps", "ibv_rate_to_mult"], "`LinkRate` has the specification's table"),
    (&["ibv_post_srq_ops", "ibv_wc_read_tm_info"], "tag matching, which one vendor's devices had: raw only"),
    (&["ibv_post_wq_recv"], "work queues have a thin owner, and no data path: raw only"),
    (
        &["ibv_resolve_eth_l2_from_gid", "ibv_flow_label_to_udp_sport"],
        "the kernel and the provider resolve addresses by themselves when an address handle is made",
    ),
    (&["ibv_wr_abort"], "what does not fit is found before `ibv_wr_start`, so nothing has to be given up"),
    (&["ibv_wr_send_tso"], "segmentation offload, of raw packet queue pairs, which have no data path: raw only"),
    (&["ibv_wr_set_xrc_srqn"], "XRC has a thin owner, and no data path: raw only"),
];
