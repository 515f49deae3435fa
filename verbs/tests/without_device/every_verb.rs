//! Each verb fails with each error number that it may have, and with some that it may not: the error says which, nothing is left
//! behind, and the next call succeeds.

use std::time::Duration;

use verbs::*;

use crate::null_provider::{Fault, Kind};
use crate::{Bench, connect};

/// Real ones, the largest that the kernel has, and numbers that are none.
const ERRNOS: [i32; 28] = [
    libc::EPERM,
    libc::ENOENT,
    libc::ESRCH,
    libc::EINTR,
    libc::EIO,
    libc::ENXIO,
    libc::EBADF,
    libc::EAGAIN,
    libc::ENOMEM,
    libc::EACCES,
    libc::EFAULT,
    libc::EBUSY,
    libc::ENODEV,
    libc::EINVAL,
    libc::EMFILE,
    libc::ENOSPC,
    libc::ERANGE,
    libc::ENOSYS,
    libc::ENODATA,
    libc::EPROTONOSUPPORT,
    libc::EOPNOTSUPP,
    libc::ETIMEDOUT,
    libc::EHOSTUNREACH,
    133,
    4095,
    i32::MAX,
    -libc::EIO,
    i32::MIN,
];

/// How a verb tells of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// NULL, and `errno`.
    Null,
    /// An error number; as old providers do it, a negative one, or −1 and `errno`.
    Code,
    /// −1, and `errno`.
    MinusOne,
    /// A negative error number.
    Negative,
}

/// An object of each kind.
struct All {
    // Declared before the bench, whose provider looks for what is left behind.
    flow_pair: RawPacketQueuePair,
    esp: EspAction,
    counters: Counters,
    table: IndirectionTable,
    wq: WorkQueue,
    xrc_receiver: XrcReceiveQueuePair,
    xrc: XrcDomain,
    srq: SharedReceiveQueue,
    extended: QueuePair<Rc>,
    extended_cq: ExtendedCompletionQueue<()>,
    ud: QueuePair<Ud>,
    local: LocalEndpoint,
    bench: Bench,
}

impl All {
    fn new() -> Self {
        let bench = Bench::new();
        let Bench { context, pd, cq, .. } = &bench;
        let xrc = context.create_xrc_domain().unwrap();
        let wq = WorkQueueBuilder::new(pd, cq, 8).build().unwrap();
        let counters = context.create_counters().unwrap();
        counters.attach(CounterDescription::BYTES, 0).unwrap();
        let extended_cq = CompletionQueueBuilder::new(context, 8).build_extended().unwrap();
        let queue = extended_cq.as_completion_queue();
        let extended = QueuePair::builder(pd, queue, queue).require_extended().extended_atomic_write();
        #[cfg(rdma_core_45)]
        let extended = extended.extended_flush();
        let extended = extended.build().unwrap();
        connect(&extended);
        let ud = QueuePair::builder(pd, cq, cq).build().unwrap();
        Self {
            flow_pair: RawPacketQueuePair::new(pd, cq, cq, QueuePairCapabilities::default()).unwrap(),
            esp: context.create_esp_action(&EspAttributes::new(1, &[0; 16])).unwrap(),
            counters,
            table: context.create_indirection_table(std::slice::from_ref(&wq)).unwrap(),
            wq,
            xrc_receiver: XrcReceiveQueuePair::new(&xrc).unwrap(),
            xrc,
            srq: pd.create_shared_receive_queue(8).unwrap(),
            extended,
            extended_cq,
            local: ud.local_endpoint(1, &GidFilter::default()).unwrap(),
            ud,
            bench,
        }
    }

    fn region(&self, access: AccessFlags) -> MemoryRegion<Vec<u8>> {
        self.bench.pd.register(vec![0; 64], access | AccessFlags::LOCAL_WRITE).unwrap()
    }
}

/// A verb, how it tells of an error, the error numbers that mean something else, and a call of it.
type Row = (&'static str, By, &'static [i32], fn(&All) -> Result<()>);

const ROWS: &[Row] = &[
    ("ibv_open_device", By::Null, &[], |all| all.bench.context.device().open().map(drop)),
    ("ibv_import_device", By::Null, &[], |all| {
        // SAFETY: the descriptor is that of an open context.
        unsafe { Context::import(all.bench.context.command_fd()) }.map(drop)
    }),
    ("ibv_query_device", By::Code, &[], |all| all.bench.context.device_attributes().map(drop)),
    // The old question is asked instead.
    ("ibv_query_device_ex", By::Code, &[libc::EOPNOTSUPP, libc::ENOSYS], |all| {
        all.bench.context.extended_device_attributes().map(drop)
    }),
    ("ibv_query_port", By::Code, &[], |all| all.bench.context.port(1).map(drop)),
    ("ibv_query_gid_table", By::Negative, &[], |all| all.bench.context.gid_table(1).map(drop)),
    // The entry is empty.
    ("ibv_query_gid_ex", By::Code, &[libc::ENODATA], |all| all.bench.context.gid(1, 0).map(drop)),
    ("ibv_query_pkey", By::MinusOne, &[], |all| all.bench.context.pkey(1, 0).map(drop)),
    ("ibv_query_rt_values_ex", By::Code, &[], |all| all.bench.context.raw_clock().map(drop)),
    // There is no event.
    ("ibv_get_async_event", By::MinusOne, &[libc::EAGAIN, libc::EINTR], |all| {
        all.bench.context.try_async_event().map(drop)
    }),
    ("ibv_fork_init", By::Code, &[], |_| prepare_for_fork()),
    ("ibv_alloc_pd", By::Null, &[], |all| all.bench.context.create_protection_domain().map(drop)),
    ("ibv_import_pd", By::Null, &[], |all| all.bench.context.import_protection_domain(all.bench.pd.handle()).map(drop)),
    ("ibv_alloc_td", By::Null, &[], |all| all.bench.context.create_thread_domain().map(drop)),
    ("ibv_alloc_parent_domain", By::Null, &[], |all| all.bench.pd.create_parent_domain().map(drop)),
    ("ibv_reg_mr", By::Null, &[], |all| Ok(all.bench.pd.register(vec![0; 8], AccessFlags::empty()).map(drop)?)),
    ("ibv_import_mr", By::Null, &[], |all| {
        let region = &all.bench.region;
        all.bench.pd.import_memory_region(region.handle(), region.address(), region.access()).map(drop)
    }),
    ("ibv_dereg_mr", By::Code, &[], |all| {
        let region = all.region(AccessFlags::empty());
        region.deregister().map(drop).map_err(|(_, error)| error)
    }),
    ("ibv_rereg_mr", By::MinusOne, &[], |all| {
        let change = Reregistration::new().access(AccessFlags::LOCAL_WRITE);
        Ok(all.region(AccessFlags::empty()).reregister(change).map(drop)?)
    }),
    ("ibv_advise_mr", By::Code, &[], |all| {
        let region = all.region(AccessFlags::empty());
        all.bench.pd.advise(Advice::PREFETCH, &[region.slice(..)?])
    }),
    ("ibv_alloc_null_mr", By::Null, &[], |all| all.bench.pd.create_null_memory_region().map(drop)),
    ("ibv_reg_dmabuf_mr", By::Null, &[], |all| {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsFd::as_fd(&file);
        all.bench.pd.register_dma_buf(fd, 0, 64, 0, AccessFlags::LOCAL_WRITE).map(drop)
    }),
    ("ibv_alloc_dm", By::Null, &[], |all| all.bench.context.allocate_device_memory(64, 0).map(drop)),
    ("ibv_import_dm", By::Null, &[], |all| {
        let memory = all.bench.context.allocate_device_memory(64, 0)?;
        // SAFETY: the memory has 64 bytes, and is freed later.
        unsafe { all.bench.context.import_device_memory(memory.handle().unwrap(), 64) }.map(drop)
    }),
    ("ibv_reg_dm_mr", By::Null, &[], |all| {
        let memory = all.bench.context.allocate_device_memory(64, 0)?;
        all.bench.pd.register_device_memory(&memory, .., AccessFlags::LOCAL_WRITE).map(drop)
    }),
    ("ibv_memcpy_to_dm", By::Code, &[], |all| all.bench.context.allocate_device_memory(64, 0)?.write_at(0, &[0; 8])),
    ("ibv_memcpy_from_dm", By::Code, &[], |all| {
        all.bench.context.allocate_device_memory(64, 0)?.read_at(0, &mut [0; 8])
    }),
    ("ibv_alloc_mw", By::Null, &[], |all| all.bench.pd.create_memory_window::<WindowType1>().map(drop)),
    ("ibv_bind_mw", By::Code, &[], |all| {
        let mut window = all.bench.pd.create_memory_window::<WindowType1>()?;
        let region = all.region(AccessFlags::MW_BIND);
        let bind = BindRequest::new(1, &region, .., AccessFlags::REMOTE_READ)?.signaled();
        let outcome = all.bench.qp.post_bind(&mut window, &bind).map(drop);
        all.bench.polled();
        outcome
    }),
    ("ibv_dealloc_mw", By::Code, &[], |all| {
        let window = all.bench.pd.create_memory_window::<WindowType2>()?;
        window.deallocate().map_err(|(_, error)| error)
    }),
    ("ibv_create_comp_channel", By::Null, &[], |all| all.bench.context.create_completion_channel().map(drop)),
    ("ibv_create_cq", By::Null, &[], |all| all.bench.context.create_completion_queue(8).map(drop)),
    ("ibv_create_cq_ex", By::Null, &[], |all| {
        CompletionQueueBuilder::new(&all.bench.context, 8).build_extended::<()>().map(drop)
    }),
    ("ibv_resize_cq", By::Code, &[], |all| all.bench.cq.resize(100)),
    ("ibv_modify_cq", By::Code, &[], |all| all.bench.cq.moderate(1, Duration::ZERO)),
    ("ibv_req_notify_cq", By::Code, &[], |all| all.bench.cq.arm(Notify::Any)),
    // There is no event, or the call is made again.
    ("ibv_get_cq_event", By::MinusOne, &[libc::EAGAIN, libc::EINTR], |all| all.bench.cq.take_event().map(drop)),
    ("ibv_create_srq", By::Null, &[], |all| all.bench.pd.create_shared_receive_queue(8).map(drop)),
    ("ibv_create_srq_ex", By::Null, &[], |all| {
        SharedReceiveQueueBuilder::new(&all.bench.pd, 8).build_xrc(&all.xrc, &all.bench.cq).map(drop)
    }),
    ("ibv_query_srq", By::Code, &[], |all| all.srq.attributes().map(drop)),
    ("ibv_modify_srq", By::Code, &[], |all| all.srq.set_limit(1)),
    ("ibv_modify_srq", By::Code, &[], |all| all.srq.resize(9)),
    ("ibv_get_srq_num", By::Code, &[], |all| all.srq.number().map(drop)),
    ("ibv_create_qp", By::Null, &[], |all| {
        let Bench { pd, cq, .. } = &all.bench;
        QueuePair::<Rc>::builder(pd, cq, cq).build().map(drop)
    }),
    ("ibv_create_qp_ex", By::Null, &[], |all| {
        let Bench { pd, cq, .. } = &all.bench;
        QueuePair::<Uc>::builder(pd, cq, cq).require_extended().build().map(drop)
    }),
    ("ibv_create_qp_ex", By::Null, &[], |all| {
        let Bench { pd, cq, .. } = &all.bench;
        QueuePair::<Ud>::builder(pd, cq, cq).block_self_multicast_loopback().build().map(drop)
    }),
    ("ibv_query_qp", By::Code, &[], |all| all.bench.qp.query().map(drop)),
    ("ibv_query_qp", By::Code, &[], |all| all.bench.qp.state().map(drop)),
    ("ibv_modify_qp", By::Code, &[], |all| all.ud.reset()),
    ("ibv_modify_qp_rate_limit", By::Code, &[], |all| all.bench.qp.set_rate_limit(&RateLimit::new(1000))),
    ("ibv_modify_qp_rate_limit", By::Code, &[], |all| all.flow_pair.set_rate_limit(&RateLimit::default())),
    ("ibv_query_ece", By::Code, &[], |all| all.bench.qp.enhanced_connection().map(drop)),
    ("ibv_set_ece", By::Code, &[], |all| all.bench.qp.set_enhanced_connection(&EnhancedConnection::new(0x2c9, 0))),
    ("ibv_attach_mcast", By::Code, &[], |all| all.ud.attach_multicast("239.1.2.3".parse()?, 0).map(drop)),
    ("ibv_detach_mcast", By::Code, &[], |all| {
        let attachment = all.ud.attach_multicast("239.1.2.4".parse()?, 0)?;
        attachment.detach().map_err(|(_, error)| error)
    }),
    ("ibv_create_ah", By::Null, &[], |all| {
        all.bench.pd.create_address_handle_to(&all.local, &all.local.endpoint).map(drop)
    }),
    ("ibv_open_xrcd", By::Null, &[], |all| all.bench.context.create_xrc_domain().map(drop)),
    ("ibv_open_qp", By::Null, &[], |all| XrcReceiveQueuePair::open(&all.xrc, all.xrc_receiver.qp_num()).map(drop)),
    ("ibv_create_wq", By::Null, &[], |all| WorkQueueBuilder::new(&all.bench.pd, &all.bench.cq, 8).build().map(drop)),
    ("ibv_modify_wq", By::Code, &[], |all| all.wq.set_state(WorkQueueState::READY)),
    ("ibv_create_rwq_ind_table", By::Null, &[], |all| {
        all.bench.context.create_indirection_table(all.table.queues()).map(drop)
    }),
    ("ibv_create_flow", By::Null, &[], |all| all.flow_pair.create_flow(&FlowRule::sniffer(1)).map(drop)),
    ("ibv_create_counters", By::Null, &[], |all| all.bench.context.create_counters().map(drop)),
    ("ibv_attach_counters_point_flow", By::Code, &[], |all| all.counters.attach(CounterDescription::BYTES, 0)),
    ("ibv_attach_counters_point_flow", By::Code, &[], |all| {
        let mut flow = all.flow_pair.create_flow(&FlowRule::sniffer(1))?;
        flow.attach_counters(&all.counters, CounterDescription::PACKETS, 1)
    }),
    ("ibv_read_counters", By::Code, &[], |all| all.counters.read(&mut [0])),
    ("ibv_create_flow_action_esp", By::Null, &[], |all| {
        all.bench.context.create_esp_action(&EspAttributes::new(1, &[0; 16])).map(drop)
    }),
    ("ibv_modify_flow_action_esp", By::Code, &[], |all| all.esp.modify(&EspAttributes::new(2, &[0; 32]))),
];

/// What a call returns that is to fail with an error number, and which number the error is to have then. `None`: it would be none.
fn faults(by: By, errno: i32) -> Vec<(Fault, i32)> {
    match by {
        By::Null | By::MinusOne => vec![(Fault { errno, returns: None }, errno)],
        By::Negative if errno < 0 => vec![],
        By::Negative => vec![(Fault { errno: 0, returns: Some(-errno) }, errno)],
        By::Code => vec![
            (Fault { errno: 0, returns: Some(errno) }, errno.saturating_abs()),
            // As old providers do it.
            (Fault { errno, returns: Some(-1) }, errno),
            (Fault { errno: 0, returns: Some(errno.saturating_neg()) }, errno.saturating_abs()),
        ],
    }
}

#[test]
fn each_verb_that_fails_says_so_and_leaves_nothing_behind() {
    let all = All::new();
    let provider = &all.bench.provider;
    let before = provider.live_objects();
    let mut tried = 0;
    for (verb, by, except, call) in ROWS {
        for (errno, (fault, expected)) in
            ERRNOS.into_iter().flat_map(|errno| faults(*by, errno).into_iter().map(move |f| (errno, f)))
        {
            // EPERM is 1, so its negative is the −1 that says to look at `errno`.
            if except.contains(&expected) || *by == By::Code && fault.returns == Some(-1) && fault.errno == 0 {
                continue;
            }
            provider.fault(verb, fault);
            let error = call(&all).expect_err(&format!("{verb}: {fault:?}"));
            assert_eq!(error.raw_os_error(), Some(expected), "{verb}, {errno}: {error}");
            assert!(error.to_string().contains(verb), "{verb}, {errno}: {error}");
            assert!(error.to_string().contains(&format!("(os error {expected})")), "{verb}, {errno}: {error}");
            let unsupported = [libc::EOPNOTSUPP, libc::ENOSYS].contains(&expected);
            assert_eq!(matches!(error, Error::Unsupported { .. }), unsupported, "{verb}: {error:?}");
            // The next one succeeds.
            call(&all).unwrap_or_else(|error| panic!("{verb}, after {errno}: {error}"));
            assert_eq!(provider.live_objects(), before, "{verb}, {errno}");
            tried += 1;
        }
    }
    assert!(tried > 2000, "{tried}");
    provider.assert_no_violation();
}

#[test]
fn a_verb_that_fails_without_an_error_number_has_failed() {
    let all = All::new();
    let before = all.bench.provider.live_objects();
    for (verb, by, _, call) in ROWS {
        let returns = match by {
            By::Code => Some(-1),
            By::Null | By::MinusOne => None,
            By::Negative => continue,
        };
        all.bench.provider.fault(verb, Fault { errno: 0, returns });
        let error = call(&all).expect_err(verb);
        assert_eq!(error.raw_os_error(), Some(0), "{verb}: {error}");
        assert!(error.to_string().contains("failed without an error number"), "{verb}: {error}");
        assert_eq!(all.bench.provider.live_objects(), before, "{verb}");
    }
    all.bench.provider.assert_no_violation();
}

/// What became of a request that the queue pair can take.
fn posted(outcome: Result<()>) -> Result<(), PostError> {
    outcome.map_err(|error| match error {
        Error::Post(error) => error,
        other => panic!("{other:?}"),
    })
}

#[test]
fn an_order_of_data_that_the_device_does_not_tell_is_no_promise() {
    let all = All::new();
    for errno in ERRNOS {
        for returns in [-errno.saturating_abs(), -1, i32::MIN] {
            // From release 46 on the question has two parts.
            for _ in 0..if cfg!(rdma_core_46) { 2 } else { 1 } {
                all.bench.provider.fault("ibv_query_qp_data_in_order", Fault { errno: 0, returns: Some(returns) });
            }
            assert_eq!(all.bench.qp.data_order(OrderedOperation::RdmaWrite), DataOrder::empty(), "{errno}");
        }
    }
    assert!(all.bench.qp.data_order(OrderedOperation::RdmaWrite).contains(DataOrder::WHOLE_MESSAGE));
    all.bench.provider.assert_no_violation();
}

#[test]
fn a_request_that_is_refused_with_any_number_is_refused_with_that_number() {
    use crate::null_provider::{BadWr, Refusal};
    let all = All::new();
    let provider = &all.bench.provider;
    for errno in ERRNOS {
        let refuse = || provider.refuse(Refusal { after: 0, errno, bad_wr: BadWr::Refused });
        type Post<'a> = &'a dyn Fn() -> Result<(), PostError>;
        let slices = [all.bench.region.slice(..8).unwrap()];
        let (send, receive) = (SendRequest::send(1, &slices), ReceiveRequest::new(1, &slices));
        let remote = RemoteSlice::new(0x1000, 8, 7).unwrap();
        let builder = || all.extended.extended().unwrap();
        let posts: &[(&str, Post<'_>)] = &[
            ("ibv_post_send", &|| all.bench.qp.post_send(&send)),
            ("ibv_post_recv", &|| all.bench.qp.post_receive(&receive)),
            ("ibv_post_srq_recv", &|| all.srq.post_receive(&receive)),
            ("ibv_wr_complete", &|| builder().post_send(&send)),
            ("ibv_wr_complete", &|| posted(builder().post_atomic_write(&AtomicWriteRequest::new(1, remote, [0; 8])))),
            #[cfg(rdma_core_45)]
            ("ibv_wr_complete", &|| {
                let request = FlushRequest::new(1, remote, PlacementType::GLOBAL, SelectivityLevel::RANGE);
                posted(builder().post_flush(&request))
            }),
        ];
        for (verb, post) in posts {
            refuse();
            let error = post().expect_err(verb);
            assert_eq!(error.raw_os_error(), errno.saturating_abs(), "{verb}: {error}");
            assert!(error.to_string().starts_with(verb), "{error}");
            // Which requests were taken is told, or not known; never are they more than there were.
            assert!(error.accepted().is_none_or(|accepted| accepted == 0), "{verb}: {error:?}");
        }
        let mut room = [WorkCompletion::default(); 4];
        provider.poll_returns(errno.saturating_abs().saturating_neg());
        assert_eq!(all.bench.cq.poll(&mut room).unwrap_err().raw_os_error(), errno.saturating_abs());
    }
    assert!(all.extended_cq.poll().unwrap().is_none());
}

#[test]
fn an_object_that_cannot_be_destroyed_is_left_and_nothing_is_destroyed_twice() {
    const VERBS: [(&str, Kind); 16] = [
        ("ibv_close_device", Kind::Context),
        ("ibv_dealloc_pd", Kind::Domain),
        ("ibv_destroy_comp_channel", Kind::Channel),
        ("ibv_destroy_cq", Kind::CompletionQueue),
        ("ibv_destroy_qp", Kind::QueuePair),
        ("ibv_destroy_srq", Kind::SharedReceiveQueue),
        ("ibv_dealloc_td", Kind::ThreadDomain),
        ("ibv_destroy_ah", Kind::AddressHandle),
        ("ibv_dealloc_mw", Kind::Window),
        ("ibv_free_dm", Kind::DeviceMemory),
        ("ibv_close_xrcd", Kind::XrcDomain),
        ("ibv_destroy_wq", Kind::WorkQueue),
        ("ibv_destroy_rwq_ind_table", Kind::IndirectionTable),
        ("ibv_destroy_flow", Kind::Flow),
        ("ibv_destroy_counters", Kind::Counters),
        ("ibv_destroy_flow_action", Kind::FlowAction),
    ];
    for (verb, kind) in VERBS {
        for returns in [libc::EBUSY, libc::EINVAL, libc::EIO, -1, -libc::EBUSY, i32::MIN, i32::MAX] {
            let all = All::new();
            let ah = all.bench.pd.create_address_handle_to(&all.local, &all.local.endpoint).unwrap();
            let domain = all.bench.context.create_thread_domain().unwrap();
            let memory = all.bench.context.allocate_device_memory(64, 0).unwrap();
            let window = all.bench.pd.create_memory_window::<WindowType2>().unwrap();
            let flow = all.flow_pair.create_flow(&FlowRule::sniffer(1)).unwrap();
            let attachment = all.ud.attach_multicast("239.1.2.3".parse().unwrap(), 0).unwrap();
            all.bench.provider.fault(verb, Fault { errno: libc::EBUSY, returns: Some(returns) });
            drop((ah, domain, memory, window, flow, attachment));
            let All {
                bench,
                flow_pair,
                esp,
                counters,
                table,
                wq,
                xrc_receiver,
                xrc,
                srq,
                extended,
                extended_cq,
                ud,
                ..
            } = all;
            drop((flow_pair, esp, counters, table, wq));
            drop((xrc_receiver, xrc, srq, extended, extended_cq, ud));
            let Bench { qp, region, cq, pd, context, provider } = bench;
            drop((qp, region, cq));
            drop((pd, context));
            let left = provider.live_objects();
            assert!(left.contains(&kind), "{verb}: {left:?}");
            // What the object was made of cannot be destroyed either, and that is all.
            let violations = provider.take_violations();
            assert!(violations.iter().all(|violation| violation.contains("is used by")), "{verb}: {violations:?}");
            provider.forget_what_is_left();
        }
    }
}
