use std::os::fd::AsRawFd;

use verbs::*;

use crate::null_provider::Kind;
use crate::{Bench, ERRNOS};

#[test]
fn the_ends_of_an_extended_reliable_connection_hold_what_they_are_made_of() {
    let bench = Bench::new();
    let live = |kind| bench.provider.live(kind);
    let pd = bench.context.create_protection_domain().unwrap();
    let cq = bench.context.create_completion_queue(16).unwrap();
    let domain = bench.context.create_xrc_domain().unwrap();
    let srq = SharedReceiveQueueBuilder::new(&pd, 9).max_sge(2).build_xrc(&domain, &cq).unwrap();
    assert_eq!((srq.attributes().unwrap().max_wr, srq.attributes().unwrap().max_sge), (9, 2));
    assert_eq!(srq.xrc_domain().map(XrcDomain::as_raw), Some(domain.as_raw()));
    assert_eq!(srq.xrc_completion_queue().map(CompletionQueue::as_raw), Some(cq.as_raw()));
    assert!(srq.number().unwrap() > 0);
    srq.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    let sender = XrcSendQueuePair::new(&pd, &cq, 4, 1).unwrap();
    let receiver = XrcReceiveQueuePair::new(&domain).unwrap();
    assert_ne!(sender.qp_num(), receiver.qp_num());
    let opened = XrcReceiveQueuePair::open(&domain, receiver.qp_num()).unwrap();
    assert_eq!(opened.qp_num(), receiver.qp_num());
    assert_ne!(opened.as_raw(), receiver.as_raw());
    drop((pd, cq, domain, receiver));
    assert_eq!((live(Kind::Domain), live(Kind::CompletionQueue), live(Kind::XrcDomain)), (2, 2, 1));
    drop((srq, sender));
    assert_eq!((live(Kind::Domain), live(Kind::CompletionQueue), live(Kind::XrcDomain)), (1, 1, 1));
    drop(opened);
    assert_eq!(live(Kind::XrcDomain), 0);
}

#[test]
fn a_domain_is_of_its_own_or_of_a_file() {
    let bench = Bench::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    let _own = bench.context.create_xrc_domain().unwrap();
    let _shared = bench.context.open_xrc_domain(&file).unwrap();
    assert_eq!(bench.provider.xrc_files(), [-1, file.as_raw_fd()]);
}

#[test]
fn what_fails_is_told_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let domain = bench.context.create_xrc_domain().unwrap();
    for errno in ERRNOS {
        let fails = |verb: &'static str, make: &dyn Fn() -> Result<()>| {
            bench.provider.fail(verb, errno);
            let error = make().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{verb}");
            assert_eq!(matches!(error, Error::Unsupported { .. }), errno == libc::EOPNOTSUPP, "{verb}");
            assert!(error.to_string().starts_with(verb), "{error}");
        };
        fails("ibv_open_xrcd", &|| bench.context.create_xrc_domain().map(drop));
        let builder = || SharedReceiveQueueBuilder::new(&bench.pd, 9);
        fails("ibv_create_srq_ex", &|| builder().build_xrc(&domain, &bench.cq).map(drop));
        fails("ibv_create_qp_ex", &|| XrcReceiveQueuePair::new(&domain).map(drop));
        let receiver = XrcReceiveQueuePair::new(&domain).unwrap();
        fails("ibv_open_qp", &|| XrcReceiveQueuePair::open(&domain, receiver.qp_num()).map(drop));
        // libibverbs makes a sending end by the old verb.
        bench.provider.fail("ibv_create_qp", errno);
        let error = XrcSendQueuePair::new(&bench.pd, &bench.cq, 4, 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
    }
    let error = XrcReceiveQueuePair::open(&domain, 0x77_7777).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn objects_of_another_context_are_refused() {
    let bench = Bench::new();
    let other = bench.provider.open();
    let (domain, cq) = (other.create_xrc_domain().unwrap(), other.create_completion_queue(1).unwrap());
    let own = bench.context.create_xrc_domain().unwrap();
    let builder = || SharedReceiveQueueBuilder::new(&bench.pd, 9);
    let argument = |error: Error| match error {
        Error::InvalidArgument { argument, .. } => argument,
        other => panic!("{other:?}"),
    };
    assert_eq!(argument(builder().build_xrc(&domain, &bench.cq).unwrap_err()), "xrcd");
    assert_eq!(argument(builder().build_xrc(&own, &cq).unwrap_err()), "cq");
    assert_eq!(argument(XrcSendQueuePair::new(&bench.pd, &cq, 1, 1).unwrap_err()), "send_cq");
}
