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
    (&["ibv_get_device_name"], "`Device::name` reads the field that it returns"),
    (&["ibv_is_qpt_supported"], "`QueuePairTypes::supports` looks at the bit itself"),
    (&["ibv_query_gid"], "`Context::gid` asks `ibv_query_gid_ex`, which tells the type too"),
    (
        &["ibv_reg_mr_iova2"],
        "what C's `ibv_reg_mr` calls where flags are not known beforehand: ours are, and `ibv_reg_mr_iova` it is",
    ),
    (&["ibv_wc_read_invalidated_rkey"], "C's inline function reads the immediate data, and so does `InvalidatedRkey`"),
    (&["rdma_get_request"], "`Listener::next_request` takes the event, with a deadline"),
    (&["rdma_get_src_port", "rdma_get_dst_port"], "the addresses of an `Id` have their ports"),
    (&["rdma_join_multicast"], "`Id::join_multicast` calls `rdma_join_multicast_ex`, which has the choices too"),
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
    (
        &["rdma_create_qp", "rdma_create_qp_ex", "rdma_destroy_qp"],
        "queue pairs are made by `verbs`, so that no call of librdmacm changes or destroys one behind its owner's back",
    ),
    (&["rdma_create_srq", "rdma_create_srq_ex", "rdma_destroy_srq"], "shared receive queues are made by `verbs`"),
    (
        &["rdma_create_ep", "rdma_destroy_ep"],
        "an endpoint owns its queue pair; `cm::connect` and `cm::Listener` are as short, and have deadlines",
    ),
    (
        &["rdma_reg_msgs", "rdma_reg_read", "rdma_reg_write", "rdma_dereg_mr"],
        "a helper over one verb: `verbs::ProtectionDomain::register`",
    ),
    (
        &[
            "rdma_post_recv",
            "rdma_post_recvv",
            "rdma_post_send",
            "rdma_post_sendv",
            "rdma_post_read",
            "rdma_post_readv",
            "rdma_post_write",
            "rdma_post_writev",
            "rdma_post_ud_send",
        ],
        "a helper over one verb, which takes addresses on trust: `verbs::QueuePair` posts",
    ),
    (&["rdma_get_send_comp", "rdma_get_recv_comp"], "a helper over one verb: `verbs::CompletionQueue::wait`"),
    (&["rdma_seterrno"], "errors are values"),
    (
        &["rdma_resolve_addrinfo", "rdma_query_addrinfo"],
        "release 60 only: a resolver of InfiniBand's subnet administration, which no other device has: raw only",
    ),
    (
        &["ibv_reg_mr_ex", "ibv_alloc_dmah", "ibv_dealloc_dmah"],
        "release 59 and newer: hints for the processor's caches, of which no device here knows: raw only",
    ),
    (&["ibv_dm_export_dmabuf_fd"], "release 62 and newer: device memory, which no device here has: raw only"),
    (
        &["ibv_alloc_buf", "ibv_free_buf", "ibv_reg_buf_mr", "ibv_export_buf_dmabuf_fd"],
        "release 64 and newer: memory that the provider allocates, which none here does: raw only",
    ),
    (
        &[
            "_ibv_query_comp_cntr_caps",
            "ibv_create_comp_cntr",
            "ibv_destroy_comp_cntr",
            "ibv_inc_comp_cntr",
            "ibv_inc_err_comp_cntr",
            "ibv_qp_attach_comp_cntr",
            "ibv_query_comp_cntr_caps",
            "ibv_read_comp_cntr",
            "ibv_read_err_comp_cntr",
            "ibv_set_comp_cntr",
            "ibv_set_err_comp_cntr",
        ],
        "release 65 and newer: completion counters, which no device here has: raw only",
    ),
    (&["rdma_write_cm_event"], "release 60 only: events of a program for itself, which `std::sync` has: raw only"),
];
