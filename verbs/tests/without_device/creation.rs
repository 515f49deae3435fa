use std::fmt::Debug;
use std::time::Duration;

use verbs::*;

use crate::null_provider::{Fault, Kind, NullProvider};
use crate::{Bench, ERRNOS};

/// Makes something while `verb` fails, with each error number: the error names the verb and the number, and nothing is left.
fn fails<T: Debug, E: Into<Error>>(provider: &NullProvider, verb: &'static str, make: impl Fn() -> Result<T, E>) {
    for errno in ERRNOS {
        provider.fail(verb, errno);
        let error: Error = make().map(drop).map_err(Into::into).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "{error}");
        assert!(error.to_string().contains(verb), "{error}");
        assert_eq!(matches!(error, Error::Unsupported { .. }), errno == libc::EOPNOTSUPP, "{error:?}");
        // And the next time it works.
        drop(make().map_err(Into::into).unwrap());
    }
}

#[test]
fn each_object_that_cannot_be_made_leaves_nothing_behind_and_names_verb_and_errno() {
    let bench = Bench::new();
    let Bench { provider, context, pd, cq, .. } = &bench;
    let kinds = [
        Kind::Context,
        Kind::Domain,
        Kind::Region,
        Kind::Channel,
        Kind::CompletionQueue,
        Kind::QueuePair,
        Kind::SharedReceiveQueue,
        Kind::ThreadDomain,
        Kind::List,
    ];
    let before = kinds.map(|kind| provider.live(kind));
    let device = devices().unwrap().get(0).unwrap();
    fails(provider, "ibv_open_device", || device.open());
    fails(provider, "ibv_alloc_pd", || context.create_protection_domain());
    fails(provider, "ibv_reg_mr", || pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE));
    fails(provider, "ibv_create_comp_channel", || context.create_completion_channel());
    fails(provider, "ibv_create_cq", || context.create_completion_queue(8));
    fails(provider, "ibv_create_qp", || QueuePair::<Rc>::builder(pd, cq, cq).build());
    fails(provider, "ibv_create_srq", || pd.create_shared_receive_queue(8));
    fails(provider, "ibv_alloc_td", || context.create_thread_domain());
    fails(provider, "ibv_alloc_parent_domain", || pd.create_parent_domain());
    drop(device);
    assert_eq!(kinds.map(|kind| provider.live(kind)), before);
}

#[test]
fn each_question_that_fails_names_verb_and_errno() {
    let bench = Bench::new();
    let Bench { provider, context, qp, cq, pd, .. } = &bench;
    fails(provider, "ibv_query_device", || context.device_attributes());
    fails(provider, "ibv_query_port", || context.port(1));
    fails(provider, "ibv_query_gid_table", || context.gid_table(1));
    fails(provider, "ibv_query_gid_ex", || context.gid(1, 0));
    fails(provider, "ibv_query_qp", || qp.state());
    fails(provider, "ibv_query_pkey", || context.pkey(1, 0));
    fails(provider, "ibv_query_rt_values_ex", || context.raw_clock());
    fails(provider, "ibv_query_ece", || qp.enhanced_connection());
    fails(provider, "ibv_set_ece", || qp.set_enhanced_connection(&EnhancedConnection::new(0x2c9, 0)));
    let srq = pd.create_shared_receive_queue(8).unwrap();
    fails(provider, "ibv_query_srq", || srq.attributes());
    fails(provider, "ibv_modify_srq", || srq.set_limit(1));
    fails(provider, "ibv_modify_srq", || srq.resize(9));
    fails(provider, "ibv_get_srq_num", || srq.number());
    fails(provider, "ibv_req_notify_cq", || cq.arm(Notify::Any));
    fails(provider, "ibv_resize_cq", || cq.resize(100));
    fails(provider, "ibv_modify_cq", || cq.moderate(1, Duration::ZERO));
    fails(provider, "ibv_modify_qp", || qp.reset());
}

#[test]
fn no_kernel_support_is_told_from_no_device() {
    let provider = NullProvider::new();
    provider.fail("ibv_get_device_list", libc::ENOSYS);
    assert!(matches!(devices(), Err(Error::NoKernelSupport { errno: libc::ENOSYS })));
    // Neither is it the kernel's fault that there is no memory, or that too many files are open.
    for errno in [libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
        provider.fail("ibv_get_device_list", errno);
        let error = devices().unwrap_err();
        assert!(matches!(error, Error::Verb { verb: "ibv_get_device_list", .. }), "{error:?}");
        assert_eq!(error.raw_os_error(), Some(errno));
        assert_eq!(error.to_string().contains("ulimit -n"), errno != libc::ENOMEM, "{error}");
    }
    let error = devices().unwrap().find(Some("mlx5_0")).unwrap_err();
    assert!(error.to_string().contains("there is null0"), "{error}");
}

#[test]
fn old_ways_to_return_an_error_are_understood() {
    let bench = Bench::new();
    let Bench { provider, qp, .. } = &bench;
    for (returns, expected) in [(-1, libc::EBUSY), (-libc::EIO, libc::EIO), (libc::EIO, libc::EIO)] {
        provider.fault("ibv_query_qp", Fault { errno: libc::EBUSY, returns: Some(returns) });
        assert_eq!(qp.state().unwrap_err().raw_os_error(), Some(expected), "{returns}");
        provider.fault("ibv_modify_qp", Fault { errno: libc::EBUSY, returns: Some(returns) });
        assert_eq!(qp.reset().unwrap_err().raw_os_error(), Some(expected), "{returns}");
    }
}

#[test]
fn a_buffer_that_cannot_be_registered_comes_back_as_it_was() {
    let bench = Bench::new();
    let mut buffer = Vec::with_capacity(100);
    buffer.extend_from_slice(b"precious");
    let address = buffer.as_ptr();
    for errno in ERRNOS {
        bench.provider.fail("ibv_reg_mr", errno);
        let refused = bench.pd.register(buffer, AccessFlags::LOCAL_WRITE).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(errno));
        buffer = refused.buffer;
        assert_eq!((buffer.as_slice(), buffer.capacity(), buffer.as_ptr()), (b"precious".as_slice(), 100, address));
    }
}

#[test]
fn locked_memory_is_the_advice_for_a_region_that_finds_none() {
    let bench = Bench::new();
    bench.provider.fail("ibv_reg_mr", libc::ENOMEM);
    let error = bench.pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap_err();
    assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
}

#[test]
fn a_connection_that_fails_in_any_of_its_transitions_can_be_made_again() {
    let bench = Bench::new();
    let Bench { provider, qp, .. } = &bench;
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    let connect = || qp.connect(&local, &local.endpoint, &ConnectOptions::default());
    for transition in 0..3 {
        qp.reset().unwrap();
        for _ in 0..transition {
            provider.fault("ibv_modify_qp", Fault { errno: 0, returns: Some(0) });
        }
        provider.fail("ibv_modify_qp", libc::EIO);
        let error = connect().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{transition}: {error}");
        qp.reset().unwrap();
        connect().unwrap();
        assert_eq!(qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
}

#[test]
fn objects_of_two_contexts_do_not_mix() {
    let bench = Bench::new();
    let other = bench.provider.open();
    let channel = other.create_completion_channel().unwrap();
    let queue = CompletionQueueBuilder::new(&bench.context, 8).channel(&channel).build();
    assert!(matches!(queue, Err(Error::InvalidArgument { argument: "channel", .. })));
    let cq = other.create_completion_queue(8).unwrap();
    for (send, receive) in [(&cq, &bench.cq), (&bench.cq, &cq)] {
        let built = QueuePair::<Rc>::builder(&bench.pd, send, receive).build();
        assert!(matches!(built, Err(Error::InvalidArgument { .. })));
    }
    let srq = other.create_protection_domain().unwrap().create_shared_receive_queue(8).unwrap();
    let built = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).shared_receive_queue(&srq).build();
    assert!(matches!(built, Err(Error::InvalidArgument { argument: "srq", .. })));
}

#[test]
fn an_error_number_left_behind_by_a_call_that_worked_is_no_error() {
    let stale = || {
        // SAFETY: the address is that of this thread's `errno`.
        unsafe { *libc::__errno_location() = libc::ENOSPC };
    };
    let bench = Bench::new();
    let Bench { context, pd, cq, qp, .. } = &bench;
    for _ in 0..3 {
        stale();
        devices().unwrap().get(0).unwrap().open().unwrap();
        stale();
        context.port(1).unwrap();
        stale();
        context.gid(1, 0).unwrap().unwrap();
        stale();
        assert!(!context.gid_table(1).unwrap().is_empty());
        stale();
        pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
        stale();
        qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
        stale();
        assert_eq!(cq.poll(&mut [WorkCompletion::default(); 2]).unwrap().len(), 1);
        stale();
        // And one that failed tells its own.
        assert_eq!(
            qp.post_send(&SendRequest::send(1, &[bench.region.slice(..).unwrap(); 9])).unwrap_err().raw_os_error(),
            libc::EINVAL
        );
    }
}

#[test]
fn devices_outlive_their_list_and_ten_thousand_lists_leave_none() {
    let provider = NullProvider::new();
    for _ in 0..10_000 {
        let list = devices().unwrap();
        let device = list.get(0).unwrap();
        drop(list);
        assert_eq!(device.name(), "null0");
        let context = device.open().unwrap();
        drop(device);
        assert_eq!(context.device().name(), "null0");
    }
    assert_eq!((provider.live(Kind::List), provider.live(Kind::Context)), (0, 0));
}

#[test]
fn a_local_slice_carries_the_local_key_and_a_remote_slice_the_other_one() {
    let bench = Bench::new();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = bench.pd.register(vec![0; 64], access).unwrap();
    let (local, remote) = (region.slice(8..16).unwrap(), region.remote_slice(8..16).unwrap());
    assert_ne!(local.lkey(), remote.rkey());
    assert_eq!((local.lkey(), Some(remote.rkey())), (region.lkey(), region.rkey()));
    // The provider knows regions by their local keys only, and looks at each slice.
    bench.qp.post_send(&SendRequest::rdma_write(1, &[local], remote).signaled()).unwrap();
    bench.qp.post_receive(&ReceiveRequest::new(2, &[local])).unwrap();
    bench.provider.assert_no_violation();
}
