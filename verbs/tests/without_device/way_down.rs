//! What C made becomes objects of the crate, and stays what it is when it is lent.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::Mutex;

use verbs::*;

use crate::null_provider::{Kind, NullProvider};
use crate::{Bench, LONG, connect};

/// Writes down in which order the lenders are let go.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

/// Destroys what it lent, and writes it down.
struct Lender(&'static str, Log, Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Lender {
    fn drop(&mut self) {
        self.1.0.lock().unwrap().push(self.0);
        if let Some(destroy) = self.2.take() {
            destroy();
        }
    }
}

impl Log {
    fn lender(&self, name: &'static str, destroy: impl FnOnce() + Send + Sync + 'static) -> Lender {
        Lender(name, self.clone(), Some(Box::new(destroy)))
    }

    fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A pointer that may go to another thread.
struct Raw<T>(NonNull<T>);

impl<T> Clone for Raw<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Raw<T> {}

// SAFETY: the provider's objects can be used by any thread.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

impl<T> Raw<T> {
    fn new(pointer: *mut T) -> Self {
        Self(NonNull::new(pointer).unwrap())
    }

    fn get(self) -> *mut T {
        self.0.as_ptr()
    }
}

/// A device that C opens.
fn opened(provider: &NullProvider) -> Raw<ffi::ibv_context> {
    let device = devices().unwrap().find(None).unwrap();
    // SAFETY: the device is alive.
    let context = Raw::new(unsafe { ffi::ibv_open_device(device.as_raw()) });
    assert_eq!(provider.live(Kind::Context), 1);
    context
}

fn made_cq(context: *mut ffi::ibv_context, channel: *mut ffi::ibv_comp_channel) -> Raw<ffi::ibv_cq> {
    // SAFETY: the context is open, and the channel is of it or null.
    Raw::new(unsafe { ffi::ibv_create_cq(context, 16, ptr::null_mut(), channel, 0) })
}

fn made_qp(pd: *mut ffi::ibv_pd, cq: *mut ffi::ibv_cq, qp_type: ffi::ibv_qp_type) -> Raw<ffi::ibv_qp> {
    // SAFETY: all zeroes are a valid structure; the domain and the queue are alive.
    unsafe {
        let mut attributes: ffi::ibv_qp_init_attr = std::mem::zeroed();
        (attributes.send_cq, attributes.recv_cq, attributes.qp_type) = (cq, cq, qp_type);
        (attributes.cap.max_send_wr, attributes.cap.max_recv_wr) = (5, 7);
        (attributes.cap.max_send_sge, attributes.cap.max_recv_sge) = (1, 2);
        Raw::new(ffi::ibv_create_qp(pd, &mut attributes))
    }
}

#[test]
fn what_is_taken_over_is_destroyed_in_order() {
    let provider = NullProvider::new();
    let context = opened(&provider);
    // SAFETY: each object is alive, and nobody else has it.
    unsafe {
        let context = Context::from_raw(context.0).unwrap();
        assert_eq!(context.device().name(), "null0");
        let pd = ProtectionDomain::from_raw(Raw::new(ffi::ibv_alloc_pd(context.as_raw())).0, &context);
        let channel = Raw::new(ffi::ibv_create_comp_channel(context.as_raw()));
        let cq = made_cq(context.as_raw(), channel.get());
        let channel = CompletionChannel::from_raw(channel.0, &context).unwrap();
        let cq = CompletionQueue::from_raw(cq.0, &context, Some(&channel));
        assert_eq!(cq.capacity(), 16);
        let qp = made_qp(pd.as_raw(), cq.as_raw(), ffi::ibv_qp_type::IBV_QPT_RC);
        let qp = QueuePair::<Rc>::from_raw(qp.0, &pd, &cq, &cq, None).unwrap();
        let caps = qp.capabilities();
        assert_eq!((caps.max_send_wr, caps.max_recv_wr, caps.max_send_sge, caps.max_recv_sge), (5, 7, 1, 2));
        connect(&qp);
        let region = pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
        // Its completions are waited for as those of any other queue.
        cq.arm(Notify::Any).unwrap();
        qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
        provider.poll_returns(0);
        provider.poll_returns(0);
        let mut room = [WorkCompletion::default(); 1];
        assert_eq!(cq.wait(&mut room, Some(LONG)).unwrap()[0].wr_id(), 1);
        assert_eq!(provider.unacked(&cq), 1);
        drop((context, pd, channel, cq));
        assert_eq!(provider.live(Kind::Context), 1);
        drop((qp, region));
    }
    provider.assert_clean();
}

#[test]
fn a_shared_receive_queue_is_taken_over() {
    let bench = Bench::new();
    // SAFETY: each object is alive, and nobody else has it.
    unsafe {
        let attr = ffi::ibv_srq_attr { max_wr: 9, max_sge: 2, srq_limit: 0 };
        let mut attributes = ffi::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        let raw = Raw::new(ffi::ibv_create_srq(bench.pd.as_raw(), &mut attributes));
        let other = bench.context.create_protection_domain().unwrap();
        let error = SharedReceiveQueue::from_raw(raw.0, &other).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "pd", .. }), "{error:?}");
        bench.provider.fail("ibv_query_srq", libc::EIO);
        assert_eq!(SharedReceiveQueue::from_raw(raw.0, &bench.pd).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(bench.provider.live(Kind::SharedReceiveQueue), 1);
        let srq = SharedReceiveQueue::from_raw(raw.0, &bench.pd).unwrap();
        assert_eq!(srq.attributes().unwrap().max_wr, 9);
        let qp = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).shared_receive_queue(&srq).build().unwrap();
        srq.post_receive(&ReceiveRequest::new(4, &[bench.region.slice(..8).unwrap()])).unwrap();
        drop(srq);
        assert!(bench.provider.deliver(&qp));
        assert_eq!(bench.polled(), [4]);
        drop(qp);
        assert_eq!(bench.provider.live(Kind::SharedReceiveQueue), 0);
    }
}

#[test]
fn what_is_lent_is_never_destroyed_and_its_lenders_are_let_go_in_order() {
    let provider = NullProvider::new();
    let log = Log::default();
    let raw = opened(&provider);
    // SAFETY: the lenders destroy the objects, in the order that C asks for.
    unsafe {
        let destroy = move || assert_eq!(ffi::ibv_close_device(raw.get()), 0);
        let context = Context::lent(raw.0, log.lender("context", destroy)).unwrap();
        let raw_pd = Raw::new(ffi::ibv_alloc_pd(raw.get()));
        let destroy = move || assert_eq!(ffi::ibv_dealloc_pd(raw_pd.get()), 0);
        let pd = ProtectionDomain::lent(raw_pd.0, &context, log.lender("domain", destroy));
        let raw_cq = made_cq(raw.get(), ptr::null_mut());
        let destroy = move || assert_eq!(ffi::ibv_destroy_cq(raw_cq.get()), 0);
        let cq = CompletionQueue::lent(raw_cq.0, &context, log.lender("completion queue", destroy));
        let raw_qp = made_qp(raw_pd.get(), raw_cq.get(), ffi::ibv_qp_type::IBV_QPT_RC);
        let destroy = move || assert_eq!(ffi::ibv_destroy_qp(raw_qp.get()), 0);
        let lender = log.lender("queue pair", destroy);
        let qp = QueuePair::<Rc>::lent(raw_qp.0, &pd, &cq, &cq, None, lender).unwrap();
        connect(&qp);
        let region = pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
        qp.post_receive(&ReceiveRequest::new(3, &[region.slice(..).unwrap()])).unwrap();
        let mut room = [WorkCompletion::default(); 2];
        assert_eq!(cq.poll(&mut room).unwrap()[0].wr_id(), 3);
        drop((context, pd, cq));
        assert_eq!(log.taken(), [""; 0]);
        drop(region);
        drop(qp);
    }
    assert_eq!(log.taken(), ["queue pair", "completion queue", "domain", "context"]);
    provider.assert_clean();
}

#[test]
fn a_context_that_is_lent_twice_is_one_open_device() {
    let provider = NullProvider::new();
    let log = Log::default();
    let raw = opened(&provider);
    // SAFETY: the context is closed after both handles are gone.
    let [first, second] =
        ["first", "second"].map(|name| unsafe { Context::lent(raw.0, log.lender(name, || {})).unwrap() });
    let pd = first.create_protection_domain().unwrap();
    let cq = second.create_completion_queue(16).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    // Whichever handle takes an event, it knows the object.
    provider.raise(&first, AsyncEventType::COMPLETION_QUEUE_ERROR, cq.as_raw() as usize);
    assert!(first.async_event(Some(LONG)).unwrap().unwrap().is_for(&cq));
    drop((first, pd));
    assert_eq!(log.taken(), [""; 0]);
    drop(qp);
    assert_eq!(log.taken(), ["first"]);
    drop((second, cq));
    assert_eq!(log.taken(), ["second"]);
    // SAFETY: nobody uses the context any more.
    assert_eq!(unsafe { ffi::ibv_close_device(raw.get()) }, 0);
    provider.assert_clean();
}

#[test]
fn what_does_not_fit_is_refused_and_still_the_callers() {
    let bench = Bench::new();
    let raw = made_qp(bench.pd.as_raw(), bench.cq.as_raw(), ffi::ibv_qp_type::IBV_QPT_UD);
    let of = |pd: &ProtectionDomain, send_cq, recv_cq, srq| {
        // SAFETY: the queue pair is alive; the call fails.
        let error = unsafe { QueuePair::<Rc>::from_raw(raw.0, pd, send_cq, recv_cq, srq) }.unwrap_err();
        let Error::InvalidArgument { argument, .. } = error else { panic!("{error:?}") };
        argument
    };
    assert_eq!(of(&bench.pd, &bench.cq, &bench.cq, None), "qp_type");
    // SAFETY: the queue pair is alive, and nobody uses it.
    unsafe { (*raw.get()).qp_type = ffi::ibv_qp_type::IBV_QPT_RC };
    let pd = bench.context.create_protection_domain().unwrap();
    let cq = bench.context.create_completion_queue(1).unwrap();
    let srq = bench.pd.create_shared_receive_queue(1).unwrap();
    assert_eq!(of(&pd, &bench.cq, &bench.cq, None), "pd");
    assert_eq!(of(&bench.pd, &cq, &bench.cq, None), "send_cq");
    assert_eq!(of(&bench.pd, &bench.cq, &cq, None), "recv_cq");
    assert_eq!(of(&bench.pd, &bench.cq, &bench.cq, Some(&srq)), "srq");
    bench.provider.fail("ibv_query_qp", libc::EIO);
    // SAFETY: the queue pair is alive, and nobody else destroys it.
    unsafe {
        let error = QueuePair::<Rc>::from_raw(raw.0, &bench.pd, &bench.cq, &bench.cq, None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert_eq!(bench.provider.live(Kind::QueuePair), 2);
        drop(QueuePair::<Rc>::from_raw(raw.0, &bench.pd, &bench.cq, &bench.cq, None).unwrap());
    }
    assert_eq!(bench.provider.live(Kind::QueuePair), 1);
}
