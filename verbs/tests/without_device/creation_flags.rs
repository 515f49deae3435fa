//! What queue pairs are made to do that others do not.

use verbs::*;

use crate::{Bench, ERRNOS, connect};

const BLOCK: u32 = ffi::ibv_qp_create_flags::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.0;
const PAD: u32 = ffi::ibv_qp_create_flags::IBV_QP_CREATE_PCI_WRITE_END_PADDING.0;

fn padded<T: Transport>(builder: QueuePairBuilder<T>) -> QueuePairBuilder<T> {
    // SAFETY: the provider writes nothing.
    unsafe { builder.pci_write_end_padding() }
}

#[test]
fn a_flag_arrives_at_the_provider_with_and_without_the_extended_interface() {
    let bench = Bench::new();
    let Bench { pd, cq, provider, .. } = &bench;
    let ud = || QueuePair::<Ud>::builder(pd, cq, cq);
    for (builder, flags, is_extended) in [
        (ud().block_self_multicast_loopback(), Some(BLOCK), false),
        (ud().block_self_multicast_loopback().require_extended(), Some(BLOCK), true),
        (padded(ud().require_extended()).block_self_multicast_loopback(), Some(BLOCK | PAD), true),
        (padded(ud()), Some(PAD), false),
        (ud().require_extended(), None, true),
    ] {
        let text = format!("{builder:?}");
        let qp = builder.max_inline_data(16).signal_all(true).build().unwrap();
        assert_eq!((provider.queue_pair_flags(), qp.extended().is_some()), (flags, is_extended), "{text}");
        assert_eq!(text.contains("BLOCK_SELF_MULTICAST_LOOPBACK"), flags.is_some_and(|flags| flags & BLOCK != 0));
        assert_eq!(qp.capabilities().max_inline_data, 16);
        let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
        qp.activate(&local, 0x11).unwrap();
        let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
        qp.post_send(&SendRequest::send_to(7, &[], &ah, 1, 0x11)).unwrap();
        assert_eq!(bench.polled(), [7]);
    }
    let rc = padded(QueuePair::<Rc>::builder(pd, cq, cq)).build().unwrap();
    assert_eq!(provider.queue_pair_flags(), Some(PAD));
    connect(&rc);
}

#[test]
fn a_provider_that_lacks_a_flag_makes_no_queue_pair_without_it() {
    let bench = Bench::new();
    let Bench { pd, cq, provider, .. } = &bench;
    let builder = || QueuePair::<Ud>::builder(pd, cq, cq).block_self_multicast_loopback();
    for errno in ERRNOS {
        provider.fail("ibv_create_qp_ex", errno);
        let error = builder().build().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        let text = error.to_string();
        assert!(text.starts_with("ibv_create_qp_ex(UD, ") && text.contains("BLOCK_SELF_MULTICAST_LOOPBACK"), "{text}");
        assert_eq!(matches!(error, Error::Unsupported { .. }), errno == libc::EOPNOTSUPP);
        assert_eq!(text.contains("so it may lack what the flags ask for"), [libc::EINVAL, libc::EIO].contains(&errno));
    }
    // Where it lacks the extended interface, the flag is asked for once more without it, and is not left out.
    provider.fail("ibv_create_qp_ex", libc::EOPNOTSUPP);
    let qp = builder().prefer_extended().build().unwrap();
    assert_eq!((qp.extended().is_some(), provider.queue_pair_flags()), (false, Some(BLOCK)));
    provider.fail("ibv_create_qp_ex", libc::EOPNOTSUPP);
    provider.fail("ibv_create_qp_ex", libc::EOPNOTSUPP);
    assert!(matches!(builder().prefer_extended().build(), Err(Error::Unsupported { .. })));
}

#[test]
fn a_queue_pair_of_raw_packets_has_the_flags_that_it_is_made_with() {
    use QueuePairCreationFlags as F;
    let bench = Bench::new();
    let Bench { pd, cq, provider, .. } = &bench;
    let make = |flags| RawPacketQueuePair::with_flags(pd, cq, cq, QueuePairCapabilities::default(), flags);
    for flags in [F::SCATTER_FCS, F::CVLAN_STRIPPING | F::PCI_WRITE_END_PADDING, F::all(), F::empty()] {
        make(flags).unwrap().activate(1).unwrap();
        assert_eq!(provider.queue_pair_flags(), Some(flags.bits()));
    }
    for errno in ERRNOS {
        provider.fail("ibv_create_qp_ex", errno);
        let error = make(F::SCATTER_FCS).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        assert!(error.to_string().contains("RAW_PACKET") && error.to_string().contains("SCATTER_FCS"), "{error}");
    }
    let stranger = provider.open().create_completion_queue(8).unwrap();
    let error = RawPacketQueuePair::with_flags(pd, cq, &stranger, QueuePairCapabilities::default(), F::SCATTER_FCS);
    assert!(matches!(error, Err(Error::InvalidArgument { argument: "recv_cq", .. })));
}
