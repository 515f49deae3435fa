//! A handle of each kind that the device has, in the midst of traffic.

use std::any::Any;

use verbs::*;

use crate::harness::*;

pub(crate) type Handle = (&'static str, Box<dyn Any + Send>);

const ACCESS: AccessFlags = RW.union(AccessFlags::MW_BIND);

/// A queue pair in RTS, connected to another.
fn connect(one: &QueuePair<Rc>, other: &QueuePair<Rc>) {
    let [here, there] = [one, other].map(|qp| qp.local_endpoint(1, &GidFilter::default()).unwrap());
    one.connect(&here, &there.endpoint, &options()).unwrap();
    other.connect(&there, &here.endpoint, &options()).unwrap();
}

/// The handles. RDMA WRITEs are under way, messages wait for a receive that never comes, receives are posted, a queue is armed, an event
/// was taken and another was not.
pub(crate) fn handles() -> Vec<Handle> {
    let list = devices().unwrap();
    let device = list.find(Some(&device_name())).unwrap();
    let context = device.open().unwrap();
    let pd = context.create_protection_domain().unwrap();
    let region = pd.register(vec![0u8; 1 << 16], ACCESS).unwrap();
    let again = region.register_again(&pd, AccessFlags::LOCAL_WRITE).unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 256).channel(&channel).build().unwrap();
    let srq = pd.create_shared_receive_queue(8).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(32).max_recv_wr(8).build().unwrap();
    let peer = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(8).max_recv_wr(8).build().unwrap();
    connect(&qp, &peer);
    let on_srq = QueuePair::<Rc>::builder(&pd, &cq, &cq).shared_receive_queue(&srq).build().unwrap();
    let extended = QueuePair::<Rc>::builder(&pd, &cq, &cq).prefer_extended().build().unwrap();
    connect(&on_srq, &extended);
    let ud = QueuePair::<Ud>::builder(&pd, &cq, &cq).max_send_wr(8).build().unwrap();
    let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
    ud.activate(&local, 0x1111_1111).unwrap();
    let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
    let attachment = ud.attach_multicast("239.1.2.3".parse().unwrap(), 0).unwrap();
    let held = region.hold(..1024).unwrap();
    // A completion and its event, which is taken, and one that is not.
    let mut room = [WorkCompletion::default(); 1];
    cq.arm(Notify::Any).unwrap();
    let whole = [region.slice(..).unwrap()];
    let remote = region.remote_slice(..).unwrap();
    qp.post_send(&SendRequest::rdma_write(1, &whole, remote).signaled()).unwrap();
    assert_eq!(cq.wait(&mut room, Some(LIMIT)).unwrap().len(), 1);
    cq.arm(Notify::Any).unwrap();
    let mut window = pd.create_memory_window::<WindowType2>().unwrap();
    let bind = BindRequest::new(2, &region, ..64, AccessFlags::REMOTE_READ).unwrap().signaled();
    qp.post_bind(&mut window, &bind).unwrap();
    let mut receives = ReceiveSlots::new(held.clone(), 128, 100).unwrap();
    receives.refill(&srq).unwrap();
    // Under way when the first handle is dropped, or waiting for a receive.
    let mut batch = SendBatch::with_capacity(8);
    let mut chain = batch.begin();
    for wr_id in 10..18 {
        chain.push(SendRequest::rdma_write(wr_id, &whole, remote).signaled());
    }
    qp.post_send_chain(&mut chain).unwrap();
    for wr_id in 20..24 {
        qp.post_send(&SendRequest::send(wr_id, &whole)).unwrap();
    }
    let prepared = PreparedSend::send_to(30, [held.clone()], &ah, ud.qp_num(), 0x1111_1111).signaled();
    ud.post_prepared_send(&prepared).unwrap();
    vec![
        ("device list", Box::new(list) as Box<dyn Any + Send>),
        ("device", Box::new(device)),
        ("context", Box::new(context)),
        ("domain", Box::new(pd)),
        ("region", Box::new(region)),
        ("region of the same memory", Box::new(again)),
        ("channel", Box::new(channel)),
        ("completion queue", Box::new(cq)),
        ("shared receive queue", Box::new(srq)),
        ("queue pair", Box::new(qp)),
        ("its peer", Box::new(peer)),
        ("queue pair on a shared receive queue", Box::new(on_srq)),
        ("extended queue pair", Box::new(extended)),
        ("datagram queue pair", Box::new(ud)),
        ("address handle", Box::new(ah)),
        ("attachment", Box::new(attachment)),
        ("held slice", Box::new(held)),
        ("window", Box::new(window)),
        ("bind request", Box::new(bind)),
        ("receive slots", Box::new(receives)),
        ("prepared datagram", Box::new(prepared)),
        ("batch", Box::new(batch)),
    ]
}
