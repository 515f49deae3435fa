//! Multicast groups.

use cm::*;
use verbs::{AccessFlags, Grh, MULTICAST_QPN, MemoryRegion, QueuePair, ReceiveRequest, SendRequest, Ud};

use crate::harness::*;

fn member(source: std::net::IpAddr, group: &str, role: MulticastRole) -> Result<MulticastGroup> {
    let mut options = options();
    options.source = Some((source, 0).into());
    options.join_multicast(group.parse().unwrap(), role)
}

fn send(from: &MulticastGroup, text: &[u8]) {
    let region = from.queue_pair().protection_domain().register(text.to_vec(), AccessFlags::empty()).unwrap();
    let message = [region.slice(..).unwrap()];
    let to = from.address();
    let request = SendRequest::send_to(9, &message, from.address_handle(), to.qp_num, to.qkey).signaled();
    from.queue_pair().post_send(&request).unwrap();
    completions(from.queue_pair().send_cq(), 1)[0].success().unwrap();
}

#[test]
fn what_is_sent_to_a_group_arrives_at_each_member() {
    let before = possessions_to_keep();
    {
        let join = || member(ip(), "239.1.2.3", MulticastRole::Full).unwrap();
        let (one, other, sender) = (join(), join(), join());
        assert_eq!(one.address().qp_num, MULTICAST_QPN);
        assert_eq!(one.address().qkey, 0x0123_4567);
        assert!(one.is_receiver());
        let regions = [&one, &other].map(|member| receive(member.queue_pair(), 1));
        send(&sender, b"to all");
        for (member, region) in [&one, &other].into_iter().zip(&regions) {
            let done = completions(member.queue_pair().recv_cq(), 1)[0];
            assert_eq!(done.success().unwrap().datagram().unwrap().source_qp_num(), sender.queue_pair().qp_num());
            assert_eq!(region.to_vec(Grh::LEN..Grh::LEN + 6).unwrap(), b"to all");
        }
    }
    has_only(before);
}

/// Memory for a message, posted so often.
fn receive(qp: &QueuePair<Ud>, count: u64) -> MemoryRegion<Vec<u8>> {
    let region = qp.protection_domain().register(vec![0u8; 64], AccessFlags::LOCAL_WRITE).unwrap();
    for wr_id in 0..count {
        qp.post_receive(&ReceiveRequest::new(wr_id, &[region.slice(..).unwrap()])).unwrap();
    }
    region
}

#[test]
fn groups_of_ipv6_are_not_supported_over_roce_and_that_is_the_error() {
    // The kernel lets out a number of its own, which the system has no text for.
    let group = "ff12::1:2:3".parse().unwrap();
    let id = EventChannel::create().unwrap().create_id(PortSpace::UDP).unwrap();
    id.bind(link_local().into()).unwrap();
    let error = id.join_multicast(group, MulticastRole::Full).unwrap_err();
    assert!(matches!(error, Error::Unsupported { errno: libc::EOPNOTSUPP, .. }), "{error}");
    // Nothing is left of it: it can be tried again, with the same error.
    let error = id.join_multicast(group, MulticastRole::Full).unwrap_err();
    assert!(matches!(error, Error::Unsupported { errno: libc::EOPNOTSUPP, .. }), "{error}");
}

#[test]
fn a_member_that_has_left_gets_nothing_more() {
    let join = || member(ip(), "239.1.2.4", MulticastRole::Full).unwrap();
    let (stays, leaves, sender) = (join(), join(), join());
    let (room, other_room) = (receive(stays.queue_pair(), 3), receive(leaves.queue_pair(), 3));
    send(&sender, b"to both");
    for member in [&stays, &leaves] {
        completions(member.queue_pair().recv_cq(), 1)[0].success().unwrap();
    }
    let left = leaves.leave().unwrap();
    // When the second one is there, the first one has been everywhere.
    send(&sender, b"still here");
    send(&sender, b"and here");
    for done in completions(stays.queue_pair().recv_cq(), 2) {
        done.success().unwrap();
    }
    assert_eq!(room.to_vec(Grh::LEN..Grh::LEN + 10).unwrap(), b"and herere");
    assert!(left.recv_cq().poll(&mut [verbs::WorkCompletion::default()]).unwrap().is_empty());
    assert_eq!(other_room.to_vec(Grh::LEN..Grh::LEN + 10).unwrap(), b"to both\0\0\0");
}

#[test]
fn an_address_that_is_no_groups_is_refused_before_the_call() {
    let error = options().join_multicast("192.0.2.1".parse().unwrap(), MulticastRole::Full).unwrap_err().to_string();
    assert!(error.contains("192.0.2.1") && error.contains("224.0.0.0/4"), "{error}");
    let id = EventChannel::create().unwrap().create_id(PortSpace::UDP).unwrap();
    let error = id.join_multicast("192.0.2.1".parse().unwrap(), MulticastRole::Full).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let error = id.join_multicast("239.1.2.3".parse().unwrap(), MulticastRole::Full).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "no device yet: {error}");
}

#[test]
fn a_group_that_an_id_is_in_cannot_be_joined_by_it_again() {
    let group = member(ip(), "239.1.2.5", MulticastRole::Full).unwrap();
    let error = group.id().join_multicast("239.1.2.5".parse().unwrap(), MulticastRole::Full).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { call: "rdma_join_multicast", .. }), "{error}");
    // Another id can.
    drop((member(ip(), "239.1.2.5", MulticastRole::Full).unwrap(), group));
}

#[test]
fn one_who_only_sends_is_no_receiver_or_the_kernel_says_no() {
    match member(ip(), "239.1.2.6", MulticastRole::SendOnly) {
        Ok(group) => {
            assert!(!group.is_receiver());
            send(&group, b"out");
        }
        Err(error) => assert!(
            matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)),
            "kernel 6.1 may not know the role on RoCE: {error}"
        ),
    }
}
