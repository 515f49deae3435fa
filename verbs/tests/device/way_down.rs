//! Objects that C makes, lends and takes back, on a real device.

use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use verbs::*;

use crate::harness::*;

/// What C made, which C destroys when nobody holds this any more.
struct Made {
    context: NonNull<ffi::ibv_context>,
    pd: NonNull<ffi::ibv_pd>,
    cq: NonNull<ffi::ibv_cq>,
    qps: [NonNull<ffi::ibv_qp>; 2],
    /// How many calls succeeded in destroying something.
    destroyed: Arc<AtomicU32>,
}

// SAFETY: the objects are only passed to libibverbs, which takes its own locks.
unsafe impl Send for Made {}
// SAFETY: as above.
unsafe impl Sync for Made {}

impl Made {
    fn new(destroyed: &Arc<AtomicU32>) -> Self {
        let device = devices().unwrap().find(Some(&device_name())).unwrap();
        // SAFETY: each object is made of those before it, which are alive; all zeroes are a valid structure.
        unsafe {
            let context = NonNull::new(ffi::ibv_open_device(device.as_raw())).unwrap();
            let pd = NonNull::new(ffi::ibv_alloc_pd(context.as_ptr())).unwrap();
            let cq = ffi::ibv_create_cq(context.as_ptr(), 16, ptr::null_mut(), ptr::null_mut(), 0);
            let cq = NonNull::new(cq).unwrap();
            let qps = [(); 2].map(|()| {
                let mut attributes: ffi::ibv_qp_init_attr = std::mem::zeroed();
                (attributes.send_cq, attributes.recv_cq) = (cq.as_ptr(), cq.as_ptr());
                attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
                (attributes.cap.max_send_wr, attributes.cap.max_recv_wr) = (4, 4);
                (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 1);
                NonNull::new(ffi::ibv_create_qp(pd.as_ptr(), &mut attributes)).unwrap()
            });
            Self { context, pd, cq, qps, destroyed: destroyed.clone() }
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let note = |code| {
            self.destroyed.fetch_add(u32::from(code == 0), Ordering::Relaxed);
        };
        // SAFETY: each object is alive, and is destroyed before what it is made of.
        unsafe {
            self.qps.iter().for_each(|qp| note(ffi::ibv_destroy_qp(qp.as_ptr())));
            note(ffi::ibv_destroy_cq(self.cq.as_ptr()));
            note(ffi::ibv_dealloc_pd(self.pd.as_ptr()));
            note(ffi::ibv_close_device(self.context.as_ptr()));
        }
    }
}

#[test]
fn lent_objects_carry_traffic_and_go_back_to_c() {
    let destroyed = Arc::new(AtomicU32::new(0));
    let made = Arc::new(Made::new(&destroyed));
    // SAFETY: all of them live as long as `made`, which each handle holds.
    let (pd, cq, [a, b]) = unsafe {
        let context = Context::lent(made.context, made.clone()).unwrap();
        let pd = ProtectionDomain::lent(made.pd, &context, made.clone());
        let cq = CompletionQueue::lent(made.cq, &context, made.clone());
        let qps = made.qps.map(|qp| QueuePair::<Rc>::lent(qp, &pd, &cq, &cq, None, made.clone()).unwrap());
        (pd, cq, qps)
    };
    drop(made);
    assert_eq!(pd.context().device().name(), device_name());
    assert!(a.capabilities().max_send_wr >= 4 && a.capabilities().max_recv_sge >= 1);
    let local = |qp: &QueuePair<Rc>| qp.local_endpoint(1, &GidFilter::default()).unwrap();
    let (from, to) = (local(&a), local(&b));
    a.connect(&from, &to.endpoint, &options()).unwrap();
    b.connect(&to, &from.endpoint, &options()).unwrap();
    let mut region = pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
    region.write_at(0, b"lent").unwrap();
    b.post_receive(&ReceiveRequest::new(1, &[region.slice(32..).unwrap()])).unwrap();
    a.post_send(&SendRequest::send(2, &[region.slice(..4).unwrap()]).signaled()).unwrap();
    let mut done = Vec::new();
    let mut room = [WorkCompletion::default(); 2];
    let deadline = std::time::Instant::now() + LIMIT;
    while done.len() < 2 && std::time::Instant::now() < deadline {
        done.extend(cq.poll(&mut room).unwrap().iter().map(|completion| {
            completion.success().unwrap();
            completion.wr_id()
        }));
    }
    done.sort_unstable();
    assert_eq!(done, [1, 2]);
    assert_eq!(region.to_vec(32..36).unwrap(), b"lent");
    drop((a, cq, pd));
    drop(region);
    assert_eq!(destroyed.load(Ordering::Relaxed), 0, "the last handle is still there");
    drop(b);
    assert_eq!(destroyed.load(Ordering::Relaxed), 5);
}

#[test]
fn what_c_made_is_taken_over_with_its_channel() {
    let device = devices().unwrap().find(Some(&device_name())).unwrap();
    // SAFETY: each object is alive, and nobody else has it.
    unsafe {
        let context = Context::from_raw(NonNull::new(ffi::ibv_open_device(device.as_raw())).unwrap()).unwrap();
        let pd = NonNull::new(ffi::ibv_alloc_pd(context.as_raw())).unwrap();
        let pd = ProtectionDomain::from_raw(pd, &context);
        let channel = NonNull::new(ffi::ibv_create_comp_channel(context.as_raw())).unwrap();
        let cq = ffi::ibv_create_cq(context.as_raw(), 16, ptr::null_mut(), channel.as_ptr(), 0);
        let channel = CompletionChannel::from_raw(channel, &context).unwrap();
        let cq = CompletionQueue::from_raw(NonNull::new(cq).unwrap(), &context, Some(&channel));
        assert!(cq.capacity() >= 16);
        let attr = ffi::ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
        let mut attributes = ffi::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        let srq = NonNull::new(ffi::ibv_create_srq(pd.as_raw(), &mut attributes)).unwrap();
        let srq = SharedReceiveQueue::from_raw(srq, &pd).unwrap();
        assert!(srq.attributes().unwrap().max_wr >= 8);
        let builder = || QueuePair::<Rc>::builder(&pd, &cq, &cq);
        let (a, b) = (builder().build().unwrap(), builder().shared_receive_queue(&srq).build().unwrap());
        let local = |qp: &QueuePair<Rc>| qp.local_endpoint(1, &GidFilter::default()).unwrap();
        let (from, to) = (local(&a), local(&b));
        a.connect(&from, &to.endpoint, &options()).unwrap();
        b.connect(&to, &from.endpoint, &options()).unwrap();
        let region = pd.register(pattern(64), AccessFlags::LOCAL_WRITE).unwrap();
        srq.post_receive(&ReceiveRequest::new(1, &[region.slice(32..).unwrap()])).unwrap();
        a.post_send(&SendRequest::send(2, &[region.slice(..32).unwrap()]).signaled()).unwrap();
        let mut done: Vec<u64> = completions(&cq, 2).iter().map(WorkCompletion::wr_id).collect();
        done.sort_unstable();
        assert_eq!(done, [1, 2]);
        assert_eq!(region.to_vec(32..).unwrap(), pattern(32));
    }
}

#[test]
fn a_fork_needs_no_preparation_or_is_prepared_for() {
    match prepare_for_fork() {
        Ok(()) => assert!([ForkStatus::ENABLED, ForkStatus::UNNEEDED].contains(&fork_status()), "{}", fork_status()),
        // Another test registered memory before, on a kernel that does not copy it.
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            assert_eq!(fork_status(), ForkStatus::DISABLED);
        }
    }
}

#[test]
fn a_gid_is_chosen_by_the_route_to_a_peer() {
    let context = open();
    let own = setting("RDMA_TEST_ADDRESS").parse().unwrap();
    // This host's own address is the source of the route to it.
    let entry = context.choose_gid(1, &GidFilter::for_peer(own)).unwrap();
    assert_eq!(entry.gid, Gid::from(own));
    let IpAddr::V4(address) = own else { return };
    // A neighbour is reached from the same address.
    let [a, b, c, d] = address.octets();
    let neighbour = IpAddr::from([a, b, c, d ^ 2]);
    assert_eq!(context.choose_gid(1, &GidFilter::for_peer(neighbour)).unwrap(), entry);
    assert_eq!(entry, context.choose_gid(1, &GidFilter::for_local(own)).unwrap());
}

#[test]
fn a_datagram_queue_pair_that_is_ready_already_knows_how_long_a_message_may_be() {
    let context = open();
    let pd = context.create_protection_domain().unwrap();
    let cq = context.create_completion_queue(16).unwrap();
    // SAFETY: all zeroes are a valid structure; the domain and the queue are alive.
    let raw = unsafe {
        let mut attributes: ffi::ibv_qp_init_attr = std::mem::zeroed();
        (attributes.send_cq, attributes.recv_cq) = (cq.as_raw(), cq.as_raw());
        attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_UD;
        (attributes.cap.max_send_wr, attributes.cap.max_send_sge) = (4, 1);
        NonNull::new(ffi::ibv_create_qp(pd.as_raw(), &mut attributes)).unwrap()
    };
    // SAFETY: the queue pair is destroyed after both handles are gone.
    let lent = || unsafe { QueuePair::<Ud>::lent(raw, &pd, &cq, &cq, None, ()).unwrap() };
    let first = lent();
    let local = first.local_endpoint(1, &GidFilter::default()).unwrap();
    first.activate(&local, 0x1111_1111).unwrap();
    drop(first);
    let second = lent();
    assert_eq!(second.query().unwrap().state(), QueuePairState::READY_TO_SEND);
    let mtu = local.port_attributes.active_mtu().bytes().unwrap() as usize;
    let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
    let region = pd.register(vec![0; mtu + 1], AccessFlags::LOCAL_WRITE).unwrap();
    let send = |length| {
        let slices = [region.slice(..length).unwrap()];
        second.post_send(&SendRequest::send_to(1, &slices, &ah, 0x11, 0x1111_1111).signaled())
    };
    send(mtu).unwrap();
    let error = send(mtu + 1).unwrap_err();
    assert!(error.to_string().contains(&mtu.to_string()), "{error}");
    drop(second);
    // SAFETY: no handle is left.
    assert_eq!(unsafe { ffi::ibv_destroy_qp(raw.as_ptr()) }, 0);
}
