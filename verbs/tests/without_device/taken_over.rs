//! What C made of the rarer kinds becomes objects of the crate, and is destroyed once.

use std::ptr::NonNull;

use verbs::*;

use crate::Bench;
use crate::null_provider::Kind;

fn raw<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).unwrap()
}

/// The argument that does not fit.
fn argument<T>(result: Result<T>) -> &'static str {
    match result {
        Err(Error::InvalidArgument { argument, .. }) => argument,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it was taken over"),
    }
}

/// How many objects of a kind there are before an object is taken over, while it is there, and after it is dropped.
fn counts<T>(bench: &Bench, kind: Kind, object: T) -> [usize; 2] {
    let there = bench.provider.live(kind);
    drop(object);
    bench.provider.assert_no_violation();
    [there, bench.provider.live(kind)]
}

#[test]
fn a_memory_region_is_taken_over_with_its_memory() {
    let bench = Bench::new();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    let register = |buffer: &mut Vec<u8>| {
        // SAFETY: the memory is registered until the region is dropped.
        unsafe {
            let data = buffer.as_mut_ptr().cast();
            raw(ffi::ibv_reg_mr_iova2(bench.pd.as_raw(), data, buffer.len(), data as u64, access.bits()))
        }
    };
    let mut buffer = vec![7; 64];
    let mr = register(&mut buffer);
    let other = bench.context.create_protection_domain().unwrap();
    // SAFETY: the region is of the buffer, or is refused.
    let region = unsafe {
        let take = |buffer, access, pd| MemoryRegion::from_raw(mr, buffer, None, access, pd);
        let refused = |buffer, access, pd, expected: &str| {
            let RegisterError { buffer, error } = take(buffer, access, pd).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == expected), "{error}");
            buffer
        };
        let buffer = refused(buffer, access, &other, "pd");
        refused(vec![0; 64], access, &bench.pd, "addr");
        let buffer = refused(buffer, AccessFlags::REMOTE_WRITE, &bench.pd, "access");
        take(buffer, access, &bench.pd).unwrap()
    };
    assert_eq!(region.to_vec(..4).unwrap(), [7; 4]);
    assert_eq!(region.remote_slice(8..16).unwrap().address(), region.address() + 8);
    bench.qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    assert_eq!(region.deregister().unwrap(), [7; 64]);
    assert_eq!(bench.provider.live(Kind::Region), 1);
    let mut buffer = vec![1; 8];
    let mr = register(&mut buffer);
    // SAFETY: the region is of the buffer, and nobody else deregisters it.
    let region = unsafe { MemoryRegion::from_raw(mr, buffer, Some(0x5000), access, &bench.pd) }.unwrap();
    assert_eq!(region.address(), 0x5000);
    assert_eq!(counts(&bench, Kind::Region, region), [2, 1]);
}

#[test]
fn what_was_made_in_a_context_is_taken_over_by_handles_of_that_context() {
    let bench = Bench::new();
    let (context, other) = (bench.context.as_raw(), bench.provider.open());
    // SAFETY: each object is alive, and nobody else has it.
    unsafe {
        let mut attributes = ffi::ibv_td_init_attr { comp_mask: 0 };
        let td = raw(ffi::ibv_alloc_td(context, &mut attributes));
        assert_eq!(argument(ThreadDomain::from_raw(td, &other)), "context");
        let taken = ThreadDomain::from_raw(td, &bench.context).unwrap();
        let again = taken.clone();
        assert_eq!(counts(&bench, Kind::ThreadDomain, taken), [1, 1]);
        assert_eq!(counts(&bench, Kind::ThreadDomain, again), [1, 0]);

        let mut attributes = ffi::ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT };
        let xrcd = raw(ffi::ibv_open_xrcd(context, &mut attributes));
        assert_eq!(argument(XrcDomain::from_raw(xrcd, &other)), "context");
        let domain = XrcDomain::from_raw(xrcd, &bench.context).unwrap();
        let made = XrcReceiveQueuePair::new(&domain).unwrap();
        let (qp, number) = (raw(made.as_raw()), made.qp_num());
        std::mem::forget(made);
        assert_eq!(argument(XrcSendQueuePair::from_raw(qp, &bench.pd, &bench.cq)), "qp_type");
        let receiver = XrcReceiveQueuePair::from_raw(qp, &domain).unwrap();
        assert_eq!(receiver.qp_num(), number);
        assert_eq!(counts(&bench, Kind::QueuePair, receiver), [2, 1]);
        // What was forgotten has the domain.
        assert_eq!(counts(&bench, Kind::XrcDomain, domain), [1, 1]);
        assert_eq!(ffi::ibv_close_xrcd(xrcd.as_ptr()), 0);

        let mut attributes = ffi::ibv_counters_init_attr { comp_mask: 0 };
        let counters = raw(ffi::ibv_create_counters(context, &mut attributes));
        assert_eq!(argument(Counters::from_raw(counters, &other)), "context");
        let taken = Counters::from_raw(counters, &bench.context).unwrap();
        taken.attach(CounterDescription::BYTES, 0).unwrap();
        assert_eq!(counts(&bench, Kind::Counters, taken), [1, 0]);

        let made = bench.context.create_esp_action(&EspAttributes::new(1, &[0; 16])).unwrap();
        let action = raw(made.as_raw());
        std::mem::forget(made);
        assert_eq!(argument(EspAction::from_raw(action, &other)), "context");
        let taken = EspAction::from_raw(action, &bench.context).unwrap();
        assert_eq!(counts(&bench, Kind::FlowAction, taken), [1, 0]);

        let mut attributes = ffi::ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
        let dm = raw(ffi::ibv_alloc_dm(context, &mut attributes));
        assert_eq!(argument(DeviceMemory::from_raw(dm, 64, &other)), "context");
        let mut taken = DeviceMemory::from_raw(dm, 64, &bench.context).unwrap();
        taken.write_at(0, &[1; 64]).unwrap();
        let region = bench.pd.register_device_memory(&taken, .., AccessFlags::LOCAL_WRITE).unwrap();
        assert_eq!(counts(&bench, Kind::DeviceMemory, taken), [1, 1]);
        assert_eq!(counts(&bench, Kind::DeviceMemory, region), [1, 0]);
    }
    bench.provider.assert_no_violation();
    // Those that were forgotten hold their contexts, too.
    drop(other);
    bench.provider.forget_what_is_left();
    std::mem::forget(bench);
}

#[test]
fn windows_and_address_handles_are_taken_over_in_their_domain() {
    let bench = Bench::new();
    let other = bench.context.create_protection_domain().unwrap();
    // SAFETY: each object is alive, and nobody else has it.
    unsafe {
        let mw = raw(ffi::ibv_alloc_mw(bench.pd.as_raw(), ffi::ibv_mw_type::IBV_MW_TYPE_2));
        assert_eq!(argument(MemoryWindow::<WindowType2>::from_raw(mw, &other)), "pd");
        assert_eq!(argument(MemoryWindow::<WindowType1>::from_raw(mw, &bench.pd)), "type");
        let mut window = MemoryWindow::<WindowType2>::from_raw(mw, &bench.pd).unwrap();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
        let region = bench.pd.register(vec![0; 64], access).unwrap();
        let bind = BindRequest::new(1, &region, .., AccessFlags::REMOTE_READ).unwrap();
        bench.qp.post_bind(&mut window, &bind).unwrap();
        assert_eq!(counts(&bench, Kind::Window, window), [1, 0]);

        let gid = bench.qp.local_endpoint(1, &GidFilter::default()).unwrap();
        let made = bench.pd.create_address_handle_to(&gid, &gid.endpoint).unwrap();
        let ah = raw(made.as_raw());
        std::mem::forget(made);
        assert_eq!(argument(AddressHandle::from_raw(ah, &other)), "pd");
        let taken = AddressHandle::from_raw(ah, &bench.pd).unwrap();
        let again = taken.clone();
        assert_eq!(counts(&bench, Kind::AddressHandle, taken), [1, 1]);
        assert_eq!(counts(&bench, Kind::AddressHandle, again), [1, 0]);
    }
    bench.provider.assert_no_violation();
    // What was forgotten holds its domain.
    bench.provider.forget_what_is_left();
    std::mem::forget((bench, other));
}

#[test]
fn raw_packets_flows_and_work_queues_are_taken_over_with_what_they_were_made_of() {
    let bench = Bench::new();
    let cq = bench.context.create_completion_queue(4).unwrap();
    let (pd, rule) = (&bench.pd, FlowRule::new(1).ethernet(EthernetMatch::default()));
    // SAFETY: each object is alive, and nobody else has it.
    unsafe {
        let made = RawPacketQueuePair::new(pd, &bench.cq, &bench.cq, QueuePairCapabilities::default()).unwrap();
        let qp = raw(made.as_raw());
        std::mem::forget(made);
        assert_eq!(argument(RawPacketQueuePair::from_raw(qp, pd, &cq, &bench.cq)), "send_cq");
        assert_eq!(argument(RawPacketQueuePair::from_raw(raw(bench.qp.as_raw()), pd, &cq, &cq)), "qp_type");
        let qp = RawPacketQueuePair::from_raw(qp, pd, &bench.cq, &bench.cq).unwrap();
        let made = qp.create_flow(&rule).unwrap();
        let flow = raw(made.as_raw());
        std::mem::forget(made);
        let foreign = bench.provider.open().create_counters().unwrap();
        assert_eq!(argument(Flow::from_raw(flow, &qp, &rule.clone().count(&foreign))), "counters");
        drop(foreign);
        let flow = Flow::from_raw(flow, &qp, &rule).unwrap();
        assert_eq!(counts(&bench, Kind::Flow, flow), [1, 0]);

        let made = WorkQueueBuilder::new(pd, &bench.cq, 4).build().unwrap();
        let wq = raw(made.as_raw());
        std::mem::forget(made);
        assert_eq!(argument(WorkQueue::from_raw(wq, pd, &cq)), "cq");
        let queue = WorkQueue::from_raw(wq, pd, &bench.cq).unwrap();
        let queues = [queue.clone(), queue];
        let made = bench.context.create_indirection_table(&queues).unwrap();
        let table = raw(made.as_raw());
        std::mem::forget(made);
        assert_eq!(argument(IndirectionTable::from_raw(table, &queues, &bench.provider.open())), "context");
        let table = IndirectionTable::from_raw(table, &queues, &bench.context).unwrap();
        assert_eq!(table.queues().len(), 2);
        assert_eq!(counts(&bench, Kind::IndirectionTable, table), [1, 0]);
        let sender = XrcSendQueuePair::new(pd, &bench.cq, 4, 1).unwrap();
        let raw_sender = raw(sender.as_raw());
        std::mem::forget(sender);
        assert_eq!(argument(XrcSendQueuePair::from_raw(raw_sender, pd, &cq)), "send_cq");
        let before = bench.provider.live(Kind::QueuePair);
        let sender = XrcSendQueuePair::from_raw(raw_sender, pd, &bench.cq).unwrap();
        assert_eq!(counts(&bench, Kind::QueuePair, sender), [before, before - 1]);
    }
    bench.provider.assert_no_violation();
    // What was forgotten holds what it was made of.
    bench.provider.forget_what_is_left();
    std::mem::forget((bench, cq));
}
