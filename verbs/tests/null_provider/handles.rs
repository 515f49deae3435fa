//! A handle of each kind: what tests drop, forget and make again and again.

use std::any::Any;
use std::time::Duration;

use verbs::*;

use super::NullProvider;

pub(crate) type Handle = (&'static str, Box<dyn Any + Send>);

/// A handle of each kind, and what is made of handles, as a program has them in the midst of its work: requests in flight, events that
/// nobody has taken, and such that were taken and not acked.
pub(crate) fn handles(provider: &NullProvider) -> Vec<Handle> {
    let list = devices().unwrap();
    let device = list.get(0).unwrap();
    let context = device.open().unwrap();
    let pd = context.create_protection_domain().unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    let region = pd.register(vec![0u8; 256], access).unwrap();
    let again = region.register_again(&pd, AccessFlags::LOCAL_WRITE).unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap();
    let srq = pd.create_shared_receive_queue(8).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    qp.connect(&local, &local.endpoint, &ConnectOptions::default()).unwrap();
    let on_srq = QueuePair::<Rc>::builder(&pd, &cq, &cq).shared_receive_queue(&srq).build().unwrap();
    let ud = QueuePair::<Ud>::builder(&pd, &cq, &cq).build().unwrap();
    let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
    ud.activate(&local, 0x11).unwrap();
    let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
    let attachment = ud.attach_multicast("239.1.2.3".parse().unwrap(), 0).unwrap();
    let held = region.hold(..64).unwrap();
    cq.arm(Notify::Any).unwrap();
    qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
    // The wait polls before it arms and before it sleeps; if it found the completion, it would not look for the event.
    provider.poll_returns(0);
    provider.poll_returns(0);
    let mut room = [WorkCompletion::default(); 1];
    assert_eq!(cq.wait(&mut room, Some(Duration::from_secs(20))).unwrap().len(), 1);
    cq.arm(Notify::Any).unwrap();
    qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    provider.raise(&context, AsyncEventType::QUEUE_PAIR_FATAL, qp.as_raw() as usize);
    let mut window = pd.create_memory_window::<WindowType2>().unwrap();
    let bind = BindRequest::new(3, &region, .., AccessFlags::REMOTE_READ).unwrap();
    qp.post_bind(&mut window, &bind).unwrap();
    let mut receives = ReceiveSlots::new(held.clone(), 16, 0).unwrap();
    receives.refill(&qp).unwrap();
    let prepared = PreparedSend::send_to(4, [held.clone()], &ah, 0x22, 0x11);
    ud.post_prepared_send(&prepared).unwrap();
    let wq = WorkQueueBuilder::new(&pd, &cq, 8).build().unwrap();
    let table = context.create_indirection_table(std::slice::from_ref(&wq)).unwrap();
    let flow_pair = RawPacketQueuePair::new(&pd, &cq, &cq, QueuePairCapabilities::default()).unwrap();
    let counters = context.create_counters().unwrap();
    let esp = context.create_esp_action(&EspAttributes::new(1, &[0; 16])).unwrap();
    let mut flow = flow_pair.create_flow(&FlowRule::new(1).count(&counters).esp(&esp)).unwrap();
    let more_counters = context.create_counters().unwrap();
    flow.attach_counters(&more_counters, CounterDescription::BYTES, 0).unwrap();
    let memory = context.allocate_device_memory(64, 0).unwrap();
    let on_device = pd.register_device_memory(&memory, .., AccessFlags::LOCAL_WRITE).unwrap();
    let xrc = context.create_xrc_domain().unwrap();
    let xrc_receiver = XrcReceiveQueuePair::new(&xrc).unwrap();
    let thread_domain = context.create_thread_domain().unwrap();
    let parent = pd.create_parent_domain().unwrap();
    let change = Reregistration::new().protection_domain(&pd).buffer(vec![0u8; 64]);
    let extended_cq = CompletionQueueBuilder::new(&context, 8).build_extended::<()>().unwrap();
    // SAFETY: the descriptor is that of an open context.
    let imported = unsafe { Context::import(context.command_fd()) }.unwrap();
    let imported_pd = imported.import_protection_domain(pd.handle()).unwrap();
    let imported_region = imported_pd.import_memory_region(region.handle(), region.address(), region.access()).unwrap();
    // SAFETY: the memory has 64 bytes, and what becomes of it is nobody's concern but the provider's.
    let imported_memory = unsafe { imported.import_device_memory(memory.handle().unwrap(), 64) }.unwrap();
    let extended = QueuePair::<Rc>::builder(&pd, &cq, &cq).require_extended().extended_atomic_write().build().unwrap();
    let local = extended.local_endpoint(1, &GidFilter::default()).unwrap();
    extended.connect(&local, &local.endpoint, &ConnectOptions::default()).unwrap();
    let write = AtomicWriteRequest::new(5, RemoteSlice::new(0x1000, 8, 7).unwrap(), [5; 8]);
    extended.extended().unwrap().post_atomic_write(&write).unwrap();
    let event = context.try_async_event().unwrap().unwrap();
    vec![
        ("device list", Box::new(list) as Box<dyn Any + Send>),
        ("device", Box::new(device)),
        ("context", Box::new(context)),
        ("domain", Box::new(pd)),
        ("region", Box::new(region)),
        ("region of the same memory", Box::new(again)),
        ("channel", Box::new(channel)),
        ("completion queue", Box::new(cq)),
        ("extended completion queue", Box::new(extended_cq)),
        ("shared receive queue", Box::new(srq)),
        ("queue pair", Box::new(qp)),
        ("queue pair on a shared receive queue", Box::new(on_srq)),
        ("datagram queue pair", Box::new(ud)),
        ("address handle", Box::new(ah)),
        ("attachment", Box::new(attachment)),
        ("held slice", Box::new(held)),
        ("window", Box::new(window)),
        ("bind request", Box::new(bind)),
        ("receive slots", Box::new(receives)),
        ("prepared datagram", Box::new(prepared)),
        ("work queue", Box::new(wq)),
        ("indirection table", Box::new(table)),
        ("raw packet queue pair", Box::new(flow_pair)),
        ("counters", Box::new(counters)),
        ("action of ESP", Box::new(esp)),
        ("flow", Box::new(flow)),
        ("device memory", Box::new(memory)),
        ("imported context", Box::new(imported)),
        ("imported domain", Box::new(imported_pd)),
        ("imported region", Box::new(imported_region)),
        ("imported device memory", Box::new(imported_memory)),
        ("counters of a flow", Box::new(more_counters)),
        ("queue pair with an atomic write under way", Box::new(extended)),
        ("region of device memory", Box::new(on_device)),
        ("XRC domain", Box::new(xrc)),
        ("receiving end of XRC", Box::new(xrc_receiver)),
        ("thread domain", Box::new(thread_domain)),
        ("parent domain", Box::new(parent)),
        ("re-registration", Box::new(change)),
        ("asynchronous event", Box::new(event)),
    ]
}
