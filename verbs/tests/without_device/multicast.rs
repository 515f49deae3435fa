use verbs::*;

use crate::Bench;

fn ud(bench: &Bench) -> QueuePair<Ud> {
    QueuePair::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap()
}

fn group(text: &str) -> Gid {
    text.parse().unwrap()
}

#[test]
fn an_attachment_ends_with_its_guard() {
    let bench = Bench::new();
    let qp = ud(&bench);
    let first = qp.attach_multicast(group("239.1.2.3"), 0).unwrap();
    let second = qp.attach_multicast(group("ff0e::1"), 0xc001).unwrap();
    assert_eq!((first.group(), first.lid()), (group("239.1.2.3"), 0));
    assert_eq!((second.group(), second.lid()), (group("ff0e::1"), 0xc001));
    assert_eq!(bench.provider.groups(&qp), 2);
    drop(first);
    assert_eq!(bench.provider.groups(&qp), 1);
    second.detach().unwrap();
    assert_eq!(bench.provider.groups(&qp), 0);
    drop(qp);
    bench.provider.assert_no_violation();
}

#[test]
fn a_group_is_left_with_the_last_of_several_attachments() {
    let bench = Bench::new();
    let qp = ud(&bench);
    let [first, second, other] = [0, 0, 1].map(|lid| qp.attach_multicast(group("239.1.2.3"), lid).unwrap());
    assert_eq!(bench.provider.groups(&qp), 2);
    drop(second);
    assert_eq!(bench.provider.groups(&qp), 2);
    drop(first);
    assert_eq!(bench.provider.groups(&qp), 1);
    drop(other);
    assert_eq!(bench.provider.groups(&qp), 0);
    bench.provider.assert_no_violation();
}

#[test]
fn a_queue_pair_leaves_its_groups_whatever_becomes_of_the_guards() {
    let bench = Bench::new();
    let qp = ud(&bench);
    let before = qp.attach_multicast(group("239.1.2.3"), 0).unwrap();
    std::mem::forget(qp.attach_multicast(group("239.1.2.4"), 0).unwrap());
    let after = qp.attach_multicast(group("239.1.2.5"), 0).unwrap();
    drop(before);
    // The queue pair is destroyed, which the provider refuses for one that is in a group.
    drop(qp);
    after.detach().unwrap();
    bench.provider.assert_no_violation();
}

#[test]
fn what_fails_changes_nothing() {
    let bench = Bench::new();
    let qp = ud(&bench);
    let error = qp.attach_multicast(group("192.0.2.1"), 0).unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument { .. }), "{error:?}");
    bench.provider.fail("ibv_attach_mcast", libc::ENOMEM);
    let error = qp.attach_multicast(group("239.1.2.3"), 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    assert!(error.to_string().contains("group ::ffff:239.1.2.3, LID 0x0"), "{error}");
    let attachment = qp.attach_multicast(group("239.1.2.3"), 0).unwrap();
    bench.provider.fail("ibv_detach_mcast", libc::EIO);
    let (attachment, error) = attachment.detach().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    assert_eq!(bench.provider.groups(&qp), 1);
    attachment.detach().unwrap();
    assert_eq!(bench.provider.groups(&qp), 0);
}
