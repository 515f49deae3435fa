use verbs::*;

use crate::null_provider::Kind;
use crate::{Bench, connect};

#[test]
fn what_is_registered_in_a_domain_is_used_in_its_parent_domains_and_the_other_way_round() {
    let bench = Bench::new();
    let parent = bench.pd.create_parent_domain().unwrap();
    let grandparent = parent.create_parent_domain().unwrap();
    assert!(parent.thread_domain().is_none());
    let own = parent.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
    for pd in [&bench.pd, &parent, &grandparent] {
        let qp = QueuePair::<Rc>::builder(pd, &bench.cq, &bench.cq).build().unwrap();
        connect(&qp);
        qp.post_receive(&ReceiveRequest::new(1, &[bench.region.slice(..8).unwrap()])).unwrap();
        qp.post_receive(&ReceiveRequest::new(2, &[own.slice(..).unwrap()])).unwrap();
        assert_eq!(bench.polled(), [1, 2]);
    }
    let other = bench.context.create_protection_domain().unwrap();
    let qp = QueuePair::<Rc>::builder(&other, &bench.cq, &bench.cq).build().unwrap();
    connect(&qp);
    // The provider looks at the domain, as a device does.
    qp.post_receive(&ReceiveRequest::new(3, &[own.slice(..).unwrap()])).unwrap();
    assert_eq!(bench.provider.take_violations().len(), 1);
}

#[test]
fn a_parent_domain_holds_what_it_was_made_of() {
    let bench = Bench::new();
    let base = bench.context.create_protection_domain().unwrap();
    let thread_domain = bench.context.create_thread_domain().unwrap();
    // SAFETY: one thread uses the objects.
    let parent = unsafe { base.create_parent_domain_in(&thread_domain) }.unwrap();
    assert_eq!(parent.thread_domain().map(ThreadDomain::as_raw), Some(thread_domain.as_raw()));
    drop((base, thread_domain));
    assert_eq!((bench.provider.live(Kind::Domain), bench.provider.live(Kind::ThreadDomain)), (3, 1));
    let qp = QueuePair::<Rc>::builder(&parent, &bench.cq, &bench.cq).build().unwrap();
    drop(parent);
    assert_eq!((bench.provider.live(Kind::Domain), bench.provider.live(Kind::ThreadDomain)), (3, 1));
    drop(qp);
    assert_eq!((bench.provider.live(Kind::Domain), bench.provider.live(Kind::ThreadDomain)), (1, 0));
}

#[test]
fn a_thread_domain_of_another_context_is_refused() {
    let bench = Bench::new();
    let thread_domain = bench.provider.open().create_thread_domain().unwrap();
    // SAFETY: one thread uses the objects.
    let error = unsafe { bench.pd.create_parent_domain_in(&thread_domain) }.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "td", .. }), "{error:?}");
}
