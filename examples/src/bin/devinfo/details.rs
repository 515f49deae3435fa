//! All that a device tells of itself: its limits, and what it can do.

use std::fs;

use verbs::{Context, ExtendedDeviceAttributes};

use crate::fields::{Fields, Value};

/// The limits and capabilities of a device.
pub(crate) fn of(context: &Context, extended: &ExtendedDeviceAttributes) -> Fields {
    let (device, attributes) = (context.device(), extended.device());
    let raw = attributes.as_raw();
    let capabilities = extended.capabilities();
    let moderation = extended.completion_moderation();
    let (paging, pacing, pci) = (extended.on_demand_paging(), extended.packet_pacing(), extended.pci_atomics());
    let (segments, scaling, tags) =
        (extended.segmentation_offload(), extended.receive_side_scaling(), extended.tag_matching());
    let general = [(paging.supported, "ODP_SUPPORT"), (paging.implicit, "ODP_SUPPORT_IMPLICIT")];
    let general = general.iter().filter(|(has, _)| *has).map(|(_, name)| (*name).to_owned()).collect();
    let delay = attributes.local_ack_delay().map(|delay| delay.as_nanos() as u64);
    Fields::default()
        .with("ibdev_index", device.index())
        .with("max_mr_size", Value::Bits(attributes.max_memory_region_size()))
        .with("page_size_cap", Value::Bits(attributes.page_sizes()))
        .with("max_qp", attributes.max_queue_pairs())
        .with("max_qp_wr", attributes.max_queue_pair_work_requests())
        .with("device_cap_flags", Value::Bits(attributes.capabilities().bits()))
        .with("capabilities", list(capabilities.iter_names()))
        .with("max_sge", attributes.max_sge())
        .with("max_sge_rd", attributes.max_sge_rd())
        .with("max_cq", attributes.max_completion_queues())
        .with("max_cqe", attributes.max_cqe())
        .with("max_mr", attributes.max_memory_regions())
        .with("max_pd", attributes.max_protection_domains())
        .with("max_qp_rd_atom", attributes.max_qp_rd_atom())
        .with("max_res_rd_atom", attributes.max_res_rd_atom())
        .with("max_qp_init_rd_atom", attributes.max_qp_init_rd_atom())
        .with("max_ee_rd_atom", number(raw.max_ee_rd_atom))
        .with("max_ee_init_rd_atom", number(raw.max_ee_init_rd_atom))
        .with("atomic_cap", attributes.atomic_capability().to_string())
        .with("max_ee", number(raw.max_ee))
        .with("max_rdd", number(raw.max_rdd))
        .with("max_raw_ipv6_qp", number(raw.max_raw_ipv6_qp))
        .with("max_raw_ethy_qp", number(raw.max_raw_ethy_qp))
        .with("max_fmr", number(raw.max_fmr))
        .with("max_map_per_fmr", number(raw.max_map_per_fmr))
        .with("max_mw", attributes.max_memory_windows())
        .with("max_mcast_grp", attributes.max_multicast_groups())
        .with("max_mcast_qp_attach", attributes.max_multicast_group_queue_pairs())
        .with("max_total_mcast_qp_attach", attributes.max_multicast_queue_pairs())
        .with("max_ah", attributes.max_address_handles())
        .with("max_srq", attributes.max_shared_receive_queues())
        .with("max_srq_wr", attributes.max_srq_work_requests())
        .with("max_srq_sge", attributes.max_srq_sge())
        .with("max_pkeys", attributes.max_pkeys())
        .with("local_ca_ack_delay", raw.local_ca_ack_delay)
        .with("local_ca_ack_delay_ns", delay)
        .with("general_odp_caps", Value::List(general))
        .with("rc_odp_caps", list(paging.rc.iter_names()))
        .with("uc_odp_caps", list(paging.uc.iter_names()))
        .with("ud_odp_caps", list(paging.ud.iter_names()))
        .with("xrc_odp_caps", list(paging.xrc.iter_names()))
        .with("completion_timestamp_mask", Value::Bits(extended.completion_timestamp_mask()))
        .with("hca_core_clock_khz", extended.core_clock_khz())
        .with("device_cap_flags_ex", Value::Bits(extended.as_raw().device_cap_flags_ex))
        .with("pci_atomic_fetch_add", Value::Bits(pci.fetch_add.into()))
        .with("pci_atomic_swap", Value::Bits(pci.swap.into()))
        .with("pci_atomic_compare_swap", Value::Bits(pci.compare_swap.into()))
        .with("max_tso", segments.max_size)
        .with("tso_caps", list(segments.queue_pair_types.iter_names()))
        .with("max_rwq_indirection_tables", scaling.max_indirection_tables)
        .with("max_rwq_indirection_table_size", scaling.max_indirection_table_size)
        .with("rx_hash_function", Value::Bits(scaling.functions.bits().into()))
        .with("rx_hash_fields_mask", Value::Bits(scaling.fields.bits()))
        .with("rss_caps", list(scaling.queue_pair_types.iter_names()))
        .with("max_wq_type_rq", extended.max_receive_work_queues())
        .with("qp_rate_limit_min", pacing.min_rate_kbps)
        .with("qp_rate_limit_max", pacing.max_rate_kbps)
        .with("packet_pacing_caps", list(pacing.queue_pair_types.iter_names()))
        .with("max_num_tags", tags.max_tags)
        .with("max_rndv_hdr_size", tags.max_rendezvous_header)
        .with("max_ops", tags.max_operations)
        .with("tag_matching_max_sge", tags.max_sge)
        .with("tag_matching_flags", list(tags.capabilities.iter_names()))
        .with("raw_packet_caps", list(extended.raw_packet_capabilities().iter_names()))
        .with("max_cq_count", moderation.max_count)
        .with("max_cq_period_us", moderation.max_period_us)
        .with("max_dm_size", extended.max_device_memory())
        .with("num_comp_vectors", context.completion_vectors())
}

/// The firmware's name for the board, where the kernel tells it.
pub(crate) fn board_id(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/sys/class/infiniband/{name}/board_id")).ok()?;
    Some(text.trim().to_owned())
}

fn list(names: impl Iterator<Item = (&'static str, impl Sized)>) -> Value {
    Value::List(names.map(|(name, _)| name.to_owned()).collect())
}

/// What C has as a signed number, though it counts.
fn number(number: i32) -> Option<u32> {
    number.try_into().ok()
}
