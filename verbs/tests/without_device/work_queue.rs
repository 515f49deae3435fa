use verbs::*;

use crate::null_provider::Kind;
use crate::{Bench, ERRNOS};

#[test]
fn packets_are_spread_over_queues_that_live_as_long_as_the_queue_pair() {
    let bench = Bench::new();
    let live = |kind| bench.provider.live(kind);
    let cq = bench.context.create_completion_queue(16).unwrap();
    let builder = || WorkQueueBuilder::new(&bench.pd, &cq, 8).max_sge(2);
    let first = builder().build().unwrap();
    let second = builder().flags(WorkQueueFlags::SCATTER_FCS).build().unwrap();
    assert_ne!(first.number(), second.number());
    assert_eq!(first.completion_queue().as_raw(), cq.as_raw());
    first.set_state(WorkQueueState::READY).unwrap();
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { (*first.as_raw()).state.0 }, WorkQueueState::READY.as_raw());
    let table =
        bench.context.create_indirection_table(&[first.clone(), second.clone(), first.clone(), second]).unwrap();
    assert_eq!(table.queues().iter().map(WorkQueue::number).filter(|number| *number == first.number()).count(), 2);
    let fields = ReceiveHashFields::SOURCE_IPV4 | ReceiveHashFields::DESTINATION_IPV4;
    let hash = ReceiveHash { key: &[7; 40], fields };
    let qp = RawPacketQueuePair::with_indirection_table(&bench.pd, &table, &hash).unwrap();
    assert_eq!(bench.provider.receive_hash(), Some((vec![7; 40], fields.bits())));
    drop((cq, first, table));
    assert_eq!((live(Kind::WorkQueue), live(Kind::IndirectionTable), live(Kind::CompletionQueue)), (2, 1, 2));
    drop(qp);
    assert_eq!((live(Kind::WorkQueue), live(Kind::IndirectionTable), live(Kind::CompletionQueue)), (0, 0, 1));
}

#[test]
fn what_does_not_fit_is_refused_before_libibverbs_sees_it() {
    let bench = Bench::new();
    let queue = WorkQueueBuilder::new(&bench.pd, &bench.cq, 8).build().unwrap();
    for count in [0, 3, 5] {
        let error = bench.context.create_indirection_table(&vec![queue.clone(); count]).unwrap_err();
        assert!(error.to_string().ends_with(&format!("is {count}, but it is a power of two")), "{error}");
    }
    let other = bench.provider.open();
    let error = other.create_indirection_table(std::slice::from_ref(&queue)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "ind_tbl", .. }), "{error:?}");
    let cq = other.create_completion_queue(1).unwrap();
    let error = WorkQueueBuilder::new(&bench.pd, &cq, 8).build().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "cq", .. }), "{error:?}");
    let table = bench.context.create_indirection_table(&[queue]).unwrap();
    let hash = ReceiveHash { key: &[0; 256], fields: ReceiveHashFields::empty() };
    let error = RawPacketQueuePair::with_indirection_table(&bench.pd, &table, &hash).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "rx_hash_key_len", .. }), "{error:?}");
}

#[test]
fn what_fails_is_told_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let queue = WorkQueueBuilder::new(&bench.pd, &bench.cq, 8).build().unwrap();
    let table = bench.context.create_indirection_table(std::slice::from_ref(&queue)).unwrap();
    for errno in ERRNOS {
        let fails = |verb: &'static str, make: &dyn Fn() -> Result<()>| {
            bench.provider.fail(verb, errno);
            let error = make().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{verb}");
            assert_eq!(matches!(error, Error::Unsupported { .. }), errno == libc::EOPNOTSUPP, "{verb}");
            assert!(error.to_string().starts_with(verb), "{error}");
        };
        fails("ibv_create_wq", &|| WorkQueueBuilder::new(&bench.pd, &bench.cq, 8).build().map(drop));
        fails("ibv_modify_wq", &|| queue.set_state(WorkQueueState::READY));
        fails("ibv_create_rwq_ind_table", &|| {
            bench.context.create_indirection_table(std::slice::from_ref(&queue)).map(drop)
        });
        let hash = ReceiveHash { key: &[7; 40], fields: ReceiveHashFields::SOURCE_IPV4 };
        let spread = || RawPacketQueuePair::with_indirection_table(&bench.pd, &table, &hash);
        fails("ibv_create_qp_ex", &|| spread().map(drop));
    }
}
