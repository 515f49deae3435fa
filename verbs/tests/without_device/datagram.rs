use verbs::*;

use crate::Bench;
use crate::null_provider::{Kind, NullProvider};

const QKEY: u32 = 0x1111_1111;

/// A UD queue pair that is ready to send, and an address handle of its domain.
struct Datagrams {
    // Declared before the provider, which looks for what is left behind.
    qp: QueuePair<Ud>,
    ah: AddressHandle,
    local: LocalEndpoint,
    bench: Bench,
}

impl Datagrams {
    fn new() -> Self {
        let bench = Bench::new();
        let builder = QueuePair::<Ud>::builder(&bench.pd, &bench.cq, &bench.cq);
        let qp = builder.max_inline_data(64).max_send_sge(2).max_recv_sge(2).require_extended().build().unwrap();
        let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
        qp.activate(&local, QKEY).unwrap();
        let ah = bench.pd.create_address_handle_to(&local, &local.endpoint).unwrap();
        Self { qp, ah, local, bench }
    }

    fn provider(&self) -> &NullProvider {
        &self.bench.provider
    }

    /// An address handle of another domain, and of another context.
    fn foreign(&self) -> [AddressHandle; 2] {
        let other = self.bench.context.create_protection_domain().unwrap();
        let context = self.provider().open().create_protection_domain().unwrap();
        [other, context].map(|pd| pd.create_address_handle_to(&self.local, &self.local.endpoint).unwrap())
    }
}

#[test]
fn a_datagram_names_its_destination_in_all_forms_of_a_request() {
    let ud = Datagrams::new();
    let (qp, ah) = (&ud.qp, &ud.ah);
    let slices = [ud.bench.region.slice(..64).unwrap()];
    let inline = [InlineSlice::new(b"inline")];
    let destination = |request: &SendRequest<'_, Ud>| {
        // SAFETY: the request is initialised, and of UD.
        let ud = unsafe { (*request.as_raw()).wr.ud };
        (ud.ah, ud.remote_qpn, ud.remote_qkey)
    };
    let mut requests = [
        SendRequest::send_to(0, &slices, ah, 7, QKEY).signaled(),
        SendRequest::send_to_with_imm(1, &slices, ah, 7, QKEY, 0x0102_0304).signaled(),
        SendRequest::send_to_inline(2, &inline, ah, 7, QKEY).signaled(),
        SendRequest::send_to_inline_with_imm(3, &inline, ah, 7, QKEY, 0x0102_0304).signaled(),
    ];
    for request in &requests {
        assert_eq!(destination(request), (ah.as_raw(), 7, QKEY));
        qp.post_send(request).unwrap();
    }
    assert_eq!(ud.bench.polled(), [0, 1, 2, 3]);
    qp.post_send_chain(&mut requests).unwrap();
    assert_eq!(ud.bench.polled(), [0, 1, 2, 3]);
    let other = ud.bench.pd.create_address_handle_to(&ud.local, &ud.local.endpoint).unwrap();
    requests[0].set_destination(&other, MULTICAST_QPN, 5);
    assert_eq!(destination(&requests[0]), (other.as_raw(), MULTICAST_QPN, 5));
    // What a datagram lacks cannot be set.
    assert!(requests[0].set_remote(RemoteSlice::new(0x1000, 8, 1).unwrap()).is_err());
    assert!(requests[0].set_imm_data(1).is_err() && requests[1].set_imm_data(1).is_ok());
    ud.provider().assert_no_violation();
}

#[test]
fn batches_and_signal_counters_take_datagrams() {
    let ud = Datagrams::new();
    let mut batch = SendBatch::with_capacity(1);
    let mut sends = SelectiveSignaling::new(&ud.qp, 2, 0);
    let mut chain = batch.begin();
    for index in 0..4 {
        let slices = [ud.bench.region.slice(index * 8..index * 8 + 8).unwrap()];
        chain.push_with(SendRequest::send_to(0, &[], &ud.ah, 7, QKEY), &slices);
    }
    sends.post_chain(&ud.qp, &mut chain).unwrap();
    sends.post(&ud.qp, &mut SendRequest::send_to(0, &[], &ud.ah, 7, QKEY)).unwrap();
    assert_eq!(ud.bench.polled(), [1, 3]);
}

#[test]
fn a_prepared_datagram_keeps_its_address_handle() {
    let ud = Datagrams::new();
    let live = || ud.provider().live(Kind::AddressHandle);
    let other = ud.bench.pd.create_address_handle_to(&ud.local, &ud.local.endpoint).unwrap();
    let slice = || [ud.bench.region.hold(..8).unwrap()];
    let mut request = PreparedSend::send_to(1, slice(), &other, 7, QKEY).signaled();
    let with_imm = PreparedSend::send_to_with_imm(2, slice(), &other, 7, QKEY, 9).signaled();
    assert_eq!(request.address_handle().as_raw(), other.as_raw());
    drop(other);
    assert_eq!(live(), 2);
    ud.qp.post_prepared_send(&request).unwrap();
    ud.qp.post_send_chain(&mut [with_imm]).unwrap();
    assert_eq!(ud.bench.polled(), [1, 2]);
    request.set_destination(&ud.ah, 8, QKEY);
    assert_eq!(live(), 1);
    ud.qp.post_prepared_send(&request).unwrap();
    assert_eq!(ud.bench.polled(), [1]);
    ud.provider().assert_no_violation();
}

#[test]
fn an_address_handle_of_another_domain_never_reaches_the_provider() {
    let ud = Datagrams::new();
    let slices = [ud.bench.region.slice(..8).unwrap()];
    for foreign in ud.foreign() {
        let refused = |error: PostError, accepted, requests| {
            assert_eq!(
                (error.kind(), error.accepted(), error.requests()),
                (PostErrorKind::Invalid, Some(accepted), requests)
            );
            assert!(error.to_string().contains("an address handle of another protection domain"), "{error}");
        };
        let request = |wr_id, ah| SendRequest::send_to(wr_id, &slices, ah, 7, QKEY).signaled();
        refused(ud.qp.post_send(&request(1, &foreign)).unwrap_err(), 0, 1);
        let prepared = PreparedSend::send_to(1, [ud.bench.region.hold(..8).unwrap()], &foreign, 7, QKEY);
        refused(ud.qp.post_prepared_send(&prepared).unwrap_err(), 0, 1);
        refused(ud.qp.post_send_chain(&mut [prepared]).unwrap_err(), 0, 1);
        let mut chain = [request(1, &ud.ah), request(2, &ud.ah), request(3, &foreign), request(4, &ud.ah)];
        refused(ud.qp.post_send_chain(&mut chain).unwrap_err(), 2, 4);
        assert_eq!(ud.bench.polled(), [1, 2]);
        let mut batch = SendBatch::with_capacity(4);
        let mut chain = batch.begin();
        for (wr_id, ah) in [(1, &ud.ah), (2, &foreign), (3, &ud.ah)] {
            chain.push(request(wr_id, ah));
        }
        refused(ud.qp.post_send_chain(&mut chain).unwrap_err(), 1, 3);
        assert_eq!(ud.bench.polled(), [1]);
    }
}

#[test]
fn datagrams_go_through_the_extended_interface_with_their_destination() {
    let ud = Datagrams::new();
    let extended = ud.qp.extended().unwrap();
    let slices = [ud.bench.region.slice(..64).unwrap()];
    let inline = [InlineSlice::new(b"inline")];
    let mut requests = [
        SendRequest::send_to(0, &slices, &ud.ah, 7, QKEY).signaled(),
        SendRequest::send_to_with_imm(1, &slices, &ud.ah, 7, QKEY, 9).signaled(),
        SendRequest::send_to_inline(2, &inline, &ud.ah, 7, QKEY).signaled(),
        SendRequest::send_to_inline_with_imm(3, &inline, &ud.ah, 7, QKEY, 9).signaled(),
    ];
    extended.post_send_chain(&mut requests).unwrap();
    assert_eq!(ud.bench.polled(), [0, 1, 2, 3]);
    extended.post_send(&requests[1]).unwrap();
    let prepared = PreparedSend::send_to(5, [ud.bench.region.hold(..8).unwrap()], &ud.ah, 7, QKEY).signaled();
    extended.post_prepared_send(&prepared).unwrap();
    assert_eq!(ud.bench.polled(), [1, 5]);
    // What the queue does not take is refused here, too, and what comes before it is sent.
    let more = [ud.bench.region.slice(..1025).unwrap()];
    let mut requests = [&slices, &more].map(|slices| SendRequest::send_to(1, slices, &ud.ah, 7, QKEY).signaled());
    let error = extended.post_send_chain(&mut requests).unwrap_err();
    assert!(error.to_string().contains("a datagram of 1025 bytes"), "{error}");
    assert_eq!((error.accepted(), ud.bench.polled()), (Some(1), vec![1]));
    for foreign in ud.foreign() {
        let error = extended.post_send(&SendRequest::send_to(1, &slices, &foreign, 7, QKEY)).unwrap_err();
        assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
        assert!(error.to_string().contains("an address handle of another protection domain"), "{error}");
    }
    ud.provider().assert_no_violation();
}

#[test]
fn a_datagram_of_more_than_a_packet_is_refused() {
    let ud = Datagrams::new();
    let mtu = ud.local.port_attributes.active_mtu().bytes().unwrap() as usize;
    let region = &ud.bench.region;
    let whole = [region.slice(..mtu - 1).unwrap(), region.slice(..1).unwrap()];
    let more = [region.slice(..mtu - 1).unwrap(), region.slice(..2).unwrap()];
    let mut chain = [&whole, &more, &whole].map(|slices| SendRequest::send_to(1, slices, &ud.ah, 7, QKEY).signaled());
    ud.qp.post_send(&chain[0]).unwrap();
    let error = ud.qp.post_send(&chain[1]).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
    assert!(error.to_string().contains("a datagram of 1025 bytes, which would get lost"), "{error}");
    assert_eq!(ud.qp.post_send_chain(&mut chain).unwrap_err().accepted(), Some(1));
    assert_eq!(ud.bench.polled(), [1, 1]);
    // Inline data has its own limit.
    let bytes = [0; 65];
    let inline = [InlineSlice::new(&bytes)];
    let error = ud.qp.post_send(&SendRequest::send_to_inline(1, &inline, &ud.ah, 7, QKEY)).unwrap_err();
    assert!(error.to_string().contains("65 bytes of inline data"), "{error}");
}

#[test]
fn the_answer_to_a_datagram_goes_where_its_header_says() {
    let mut ud = Datagrams::new();
    // As it would have arrived from 192.0.2.33, for 192.0.2.9.
    let mut grh = [0; Grh::LEN];
    grh[20..].copy_from_slice(&[0x45, 0, 0, 60, 0, 0, 0, 0, 63, 17, 0, 0, 192, 0, 2, 33, 192, 0, 2, 9]);
    ud.bench.region.write_at(100, &grh).unwrap();
    ud.bench.region.write_at(140, b"hello").unwrap();
    ud.qp.post_receive(&ReceiveRequest::new(1, &[ud.bench.region.slice(100..145).unwrap()])).unwrap();
    let mut room = [WorkCompletion::default(); 1];
    let completion = ud.bench.cq.poll(&mut room).unwrap()[0];
    let datagram = completion.success().unwrap().datagram().unwrap();
    assert_eq!((datagram.source_qp_num(), datagram.payload_len(), datagram.has_grh()), (0x77, 5, true));
    assert_eq!((datagram.source_lid(), datagram.service_level(), datagram.destination_path_bits()), (5, 3, 1));
    assert_eq!(ud.bench.region.to_vec(datagram.payload_at(100)).unwrap(), b"hello");
    let grh = datagram.grh(&ud.bench.region, 100).unwrap().unwrap();
    assert_eq!(grh.source(), Some("192.0.2.33".parse().unwrap()));
    assert!(matches!(datagram.grh(&ud.bench.region, 4057), Err(Error::OutOfRange { start: 4057, end: 4097, .. })));
    let path = AddressHandleAttributes::from_completion(&ud.bench.context, 1, &datagram, Some(&grh)).unwrap();
    assert_eq!((path.port, path.lid, path.service_level, path.source_path_bits), (1, 5, 3, 1));
    let route = path.global_route.unwrap();
    assert_eq!((route.destination, route.source_gid_index, route.hop_limit), (grh.source().unwrap(), 1, 63));
    let ah = ud.bench.pd.create_address_handle_from_completion(1, &datagram, Some(&grh)).unwrap();
    ud.qp.post_send(&SendRequest::send_to(2, &[], &ah, datagram.source_qp_num(), QKEY).signaled()).unwrap();
    assert_eq!(ud.bench.polled(), [2]);

    // One that was sent to a group does not say which of our addresses to answer with.
    let mut to_group = grh.to_bytes();
    to_group[36..].copy_from_slice(&[239, 1, 2, 3]);
    let to_group = Grh::from_bytes(to_group);
    let error = AddressHandleAttributes::from_completion(&ud.bench.context, 1, &datagram, Some(&to_group)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    let text = error.to_string();
    assert!(text.contains("multicast group ::ffff:239.1.2.3") && text.contains("::ffff:192.0.2.33"), "{text}");
    let error = ud.bench.pd.create_address_handle_from_completion(1, &datagram, Some(&to_group)).unwrap_err();
    assert!(error.to_string().contains("make the address handle from a local endpoint"), "{error}");
    let error = ud.bench.pd.create_address_handle_from_completion(1, &datagram, None).unwrap_err();
    assert!(error.to_string().contains("no header that tells where the datagram came from"), "{error}");
}

#[test]
fn only_a_receive_of_40_bytes_or_more_is_a_datagram() {
    let ud = Datagrams::new();
    let completion = || {
        let mut room = [WorkCompletion::default(); 1];
        ud.bench.cq.poll(&mut room).unwrap()[0]
    };
    // A connected queue pair takes receives of any length.
    for (length, payload) in [(0, None), (39, None), (40, Some(0)), (41, Some(1))] {
        let slices = [ud.bench.region.slice(..length).unwrap()];
        ud.bench.qp.post_receive(&ReceiveRequest::new(1, &slices)).unwrap();
        let datagram = |success: Success<'_>| success.datagram().map(|datagram| datagram.payload_len());
        assert_eq!(datagram(completion().success().unwrap()), payload, "{length}");
    }
    ud.qp.post_send(&SendRequest::send_to(1, &[], &ud.ah, 7, QKEY).signaled()).unwrap();
    assert!(completion().success().unwrap().datagram().is_none());
}

#[test]
fn a_receive_without_room_for_a_header_is_refused_and_those_before_it_are_posted() {
    let ud = Datagrams::new();
    let region = &ud.bench.region;
    let (short, whole) = ([region.slice(..39).unwrap()], [region.slice(..8).unwrap(), region.slice(..32).unwrap()]);
    let refused = |error: PostError, accepted, requests| {
        assert_eq!(
            (error.kind(), error.accepted(), error.requests()),
            (PostErrorKind::Invalid, Some(accepted), requests)
        );
        assert!(error.to_string().contains("a receive of 39 bytes"), "{error}");
    };
    refused(ud.qp.post_receive(&ReceiveRequest::new(1, &short)).unwrap_err(), 0, 1);
    let prepared = || [region.hold(..39).unwrap()];
    refused(ud.qp.post_prepared_receive(&PreparedReceive::new(1, prepared())).unwrap_err(), 0, 1);
    refused(ud.qp.post_receive_chain(&mut [PreparedReceive::new(1, prepared())]).unwrap_err(), 0, 1);
    ud.qp.post_receive(&ReceiveRequest::new(1, &whole)).unwrap();
    let mut chain = [&whole[..], &whole, &short, &whole].map(|slices| ReceiveRequest::new(2, slices));
    refused(ud.qp.post_receive_chain(&mut chain).unwrap_err(), 2, 4);
    assert_eq!(ud.bench.polled(), [1, 2, 2]);
    ud.qp.post_receive_chain(&mut chain[..2]).unwrap();
    ud.qp.post_receive_chain(&mut chain[..0]).unwrap();
    assert_eq!(ud.bench.polled(), [2, 2]);
    // Slots that were refused wait for the next refill, and can be posted to another queue pair.
    let mut slots = ReceiveSlots::new(region.hold(..39 * 4).unwrap(), 39, 100).unwrap();
    refused(slots.refill(&ud.qp).unwrap_err(), 0, 4);
    assert_eq!((slots.waiting(), slots.refill(&ud.bench.qp).unwrap()), (4, 4));
    assert_eq!(ud.bench.polled(), [100, 101, 102, 103]);
    ud.provider().assert_no_violation();
}

#[test]
fn an_address_handle_that_cannot_be_made_is_diagnosed() {
    let ud = Datagrams::new();
    let pd = &ud.bench.pd;
    let attributes = AddressHandleAttributes::between(&ud.local, &ud.local.endpoint).unwrap();
    let refused = |attributes: &AddressHandleAttributes| pd.create_address_handle(attributes).unwrap_err().to_string();
    let mut other = attributes;
    other.port = 7;
    assert!(refused(&other).contains("port_num is 7"), "{}", refused(&other));
    let mut other = attributes;
    other.global_route = None;
    assert!(refused(&other).contains("the link layer is Ethernet (RoCE), which needs GIDs"), "{}", refused(&other));
    let mut other = attributes;
    other.service_level = 16;
    assert!(refused(&other).contains("service_level is 16, but it is 0 to 15"), "{}", refused(&other));
    ud.provider().fail("ibv_create_ah", libc::ETIMEDOUT);
    let text = refused(&attributes);
    assert!(
        text.contains("nobody answers at the remote GID ::ffff:192.0.2.9 on the network of local GID index 1"),
        "{text}"
    );
    // Of the ends, both need a GID; and a group a group's.
    let mut nowhere = ud.local.endpoint;
    nowhere.gid = None;
    assert!(pd.create_address_handle_to(&ud.local, &nowhere).unwrap_err().to_string().contains("the remote GID"));
    let error = AddressHandleAttributes::to_multicast(&ud.local, ud.local.endpoint.gid.unwrap(), 0).unwrap_err();
    assert!(error.to_string().contains("a multicast group has an IPv4 address of 224.0.0.0/4"), "{error}");
    let group = AddressHandleAttributes::to_multicast(&ud.local, "239.1.2.3".parse().unwrap(), 0).unwrap();
    pd.create_address_handle(&group).unwrap();
}

#[test]
fn an_address_handle_outlives_all_handles_to_what_it_was_made_of() {
    let ud = Datagrams::new();
    let Datagrams { qp, ah, bench, .. } = ud;
    let clone = ah.clone();
    let Bench { qp: rc, region, cq, pd, context, provider } = bench;
    drop((qp, ah, rc, region, cq, pd, context));
    assert_eq!((provider.live(Kind::AddressHandle), provider.live(Kind::Domain)), (1, 1));
    drop(clone);
    assert_eq!((provider.live(Kind::AddressHandle), provider.live(Kind::Domain)), (0, 0));
}
