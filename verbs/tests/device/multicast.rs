//! UD multicast.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use verbs::*;

use crate::harness::*;

const QKEY: u32 = 0x1111_1111;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

fn ready(context: Context) -> (Side<Ud>, LocalEndpoint) {
    let side = Side::of(context, |builder| builder.max_inline_data(64));
    let local = side.qp.local_endpoint(1, &GidFilter::default()).unwrap();
    side.qp.activate(&local, QKEY).unwrap();
    (side, local)
}

/// Has the kernel deliver the group's packets to an interface, as the connection manager would, as long as the socket lives.
fn join(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.join_multicast_v4(&GROUP, &address.parse().unwrap()).unwrap();
    socket
}

/// Posts a receive of a datagram.
fn expect(side: &Side<Ud>, region: &MemoryRegion<Vec<u8>>) {
    side.qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
}

/// What arrives within a time in which it would.
fn arrived(side: &Side<Ud>, wait: Duration) -> Option<WorkCompletion> {
    let mut room = [WorkCompletion::default(); 1];
    side.cq.wait(&mut room, Some(wait)).unwrap().first().copied()
}

#[test]
fn a_datagram_to_a_group_reaches_who_is_attached_with_the_groups_address_in_its_header() {
    patiently(a_datagram_to_a_group);
}

/// Whether what nobody was to get was gone before somebody was attached.
fn a_datagram_to_a_group(pause: Duration) -> bool {
    let _joined = join(&setting("RDMA_TEST_PEER_ADDRESS"));
    let (sender, from) = ready(open());
    let peer = open_peer();
    let receivers = [ready(peer.clone()).0, ready(peer).0];
    let regions = receivers.each_ref().map(|receiver| receiver.region(64, RW));
    let group = Gid::from(GROUP);
    let path = AddressHandleAttributes::to_multicast(&from, group, 0).unwrap();
    let ah = sender.pd.create_address_handle(&path).unwrap();
    let send = |text: &[u8]| {
        let message = [InlineSlice::new(text)];
        let request = SendRequest::send_to_inline(2, &message, &ah, MULTICAST_QPN, QKEY).signaled();
        sender.qp.post_send(&request).unwrap();
        sender.completion().success().unwrap();
    };
    for (receiver, region) in receivers.iter().zip(&regions) {
        expect(receiver, region);
    }
    // Nobody is attached yet.
    send(b"nobody");
    assert!(receivers.iter().all(|receiver| arrived(receiver, pause).is_none()));
    let attachments = receivers.each_ref().map(|receiver| receiver.qp.attach_multicast(group, 0).unwrap());
    send(b"to all");
    for (receiver, region) in receivers.iter().zip(&regions) {
        let completion = arrived(receiver, LIMIT).expect("a datagram to the group");
        let datagram = completion.success().unwrap().datagram().unwrap();
        assert_eq!((datagram.source_qp_num(), datagram.payload_len()), (sender.qp.qp_num(), 6));
        let text = region.to_vec(datagram.payload_at(0)).unwrap();
        if text == b"nobody" {
            return false;
        }
        assert_eq!(text, b"to all");
        let grh = datagram.grh(region, 0).unwrap().unwrap();
        assert_eq!((grh.source(), grh.destination()), (from.endpoint.gid, Some(group)));
        // It does not tell by which address to answer.
        let error = receiver.pd.create_address_handle_from_completion(1, &datagram, Some(&grh)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().contains("multicast group ::ffff:239.1.2.3"), "{error}");
        expect(receiver, region);
    }
    // One of them leaves.
    let [first, second] = attachments;
    first.detach().unwrap();
    send(b"to one");
    assert!(arrived(&receivers[1], LIMIT).is_some());
    assert!(arrived(&receivers[0], pause).is_none());
    drop(second);
    true
}

#[test]
fn a_queue_pair_in_groups_can_be_dropped() {
    let (side, _) = ready(open());
    let group = Gid::from(GROUP);
    let kept = side.qp.attach_multicast(group, 0).unwrap();
    let again = side.qp.attach_multicast(group, 0).unwrap();
    drop(again);
    std::mem::forget(side.qp.attach_multicast(Gid::from(Ipv4Addr::new(239, 1, 2, 4)), 0).unwrap());
    let Side { qp, cq, .. } = side;
    drop(qp);
    // It is gone: the queue that it used can be destroyed.
    drop((kept, cq));
}

#[test]
fn an_address_that_is_no_groups_is_refused() {
    let (side, local) = ready(open());
    let own = local.endpoint.gid.unwrap();
    let error = side.qp.attach_multicast(own, 0).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    assert!(error.to_string().contains("224.0.0.0/4"), "{error}");
}

#[test]
fn a_sender_that_is_attached_itself_gets_its_own_datagram_once_however_often_it_joined() {
    let own = setting("RDMA_TEST_ADDRESS");
    let _joined = join(&own);
    let (side, local) = ready(open());
    let group = Gid::from(GROUP);
    let ah = side.pd.create_address_handle(&AddressHandleAttributes::to_multicast(&local, group, 0).unwrap()).unwrap();
    let attachments = [side.qp.attach_multicast(group, 0).unwrap(), side.qp.attach_multicast(group, 0).unwrap()];
    let region = side.region(64, RW);
    let send = || {
        let message = [InlineSlice::new(b"to me")];
        let request = SendRequest::send_to_inline(2, &message, &ah, MULTICAST_QPN, QKEY);
        side.qp.post_send(&request).unwrap();
    };
    expect(&side, &region);
    expect(&side, &region);
    send();
    let completion = arrived(&side, LIMIT).expect("a sender's own datagram");
    let datagram = completion.success().unwrap().datagram().unwrap();
    assert_eq!(datagram.source_qp_num(), side.qp.qp_num());
    assert_eq!(region.to_vec(datagram.payload_at(0)).unwrap(), b"to me");
    let pause = Duration::from_millis(300);
    assert!(arrived(&side, pause).is_none());
    // It is in the group until the last attachment is gone.
    let [one, other] = attachments;
    one.detach().unwrap();
    send();
    assert!(arrived(&side, LIMIT).is_some());
    other.detach().unwrap();
    expect(&side, &region);
    send();
    assert!(arrived(&side, pause).is_none());
}

#[test]
fn a_device_that_delivers_what_a_queue_pair_sends_to_its_own_group_says_so() {
    let side = Side::<Ud>::of(open(), |builder| builder);
    let builder = || QueuePair::<Ud>::builder(&side.pd, &side.cq, &side.cq).block_self_multicast_loopback();
    for builder in [builder(), builder().require_extended(), builder().prefer_extended()] {
        match builder.build() {
            Ok(qp) => qp.activate(&side.local(), QKEY).unwrap(),
            // The latter of a device that knows of flags, and not of this one.
            Err(error) => {
                assert!(matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)), "{error:?}");
                let text = error.to_string();
                assert!(text.starts_with("ibv_create_qp_ex(UD, "), "{text}");
                assert!(text.contains("BLOCK_SELF_MULTICAST_LOOPBACK"), "{text}");
                assert_eq!(matches!(error, Error::Unsupported { .. }), error.raw_os_error() == Some(libc::EOPNOTSUPP));
            }
        }
    }
    // Nothing is left of it.
    side.qp.activate(&side.local(), QKEY).unwrap();
}
