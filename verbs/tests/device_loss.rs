//! The unreliable transports on a wire that loses, doubles or reorders packets: what arrives is whole, the rest is gone without a word.

mod harness;

use std::time::Duration;

use verbs::*;

use harness::link::Disturbance;
use harness::*;

const MESSAGES: usize = 100;

/// What is sent as message `number`, in `length` bytes.
fn message(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (number * 31 + index * 7) as u8).collect()
}

/// Looks at what arrives: the messages that do, by their immediate data, until none has come for a while. `take` copies one out.
fn arrivals<T: Transport>(side: &Side<T>, length: usize, take: impl Fn(u64, &Success<'_>) -> Vec<u8>) -> Vec<usize> {
    let mut numbers = Vec::new();
    let mut room = [WorkCompletion::default(); 16];
    loop {
        let some = side.cq.wait(&mut room, Some(Duration::from_millis(500))).unwrap();
        if some.is_empty() {
            return numbers;
        }
        for completion in some {
            let success = completion.success().unwrap();
            let number = success.imm_data().unwrap() as usize;
            assert!(
                take(completion.wr_id(), &success) == message(number, length),
                "message {number} has arrived in part"
            );
            numbers.push(number);
        }
    }
}

fn check(arrived: &[usize]) {
    assert!(arrived.is_sorted_by(|one, next| one < next), "{arrived:?}");
    assert!((10..MESSAGES).contains(&arrived.len()), "{} of {MESSAGES} have arrived", arrived.len());
}

/// Sends messages of UC while the wire is disturbed; those that arrive.
fn messages_of_uc(how: &str) -> Vec<usize> {
    // Three packets each.
    const LENGTH: usize = 10_000;
    let wide = |builder: QueuePairBuilder<Uc>| builder.max_send_wr(8).max_recv_wr(MESSAGES as u32);
    let sides = [open(), open_peer()].map(|context| Side::of(context, wide));
    connect(&sides[0], &sides[1], &ConnectOptions::default());
    let [a, b] = sides;
    let mut source = a.region(LENGTH, RW);
    let target = b.region(MESSAGES * LENGTH, RW);
    for number in 0..MESSAGES {
        let slices = [target.slice(number * LENGTH..(number + 1) * LENGTH).unwrap()];
        b.qp.post_receive(&ReceiveRequest::new(number as u64, &slices)).unwrap();
    }
    let disturbance = Disturbance::of([setting("RDMA_TEST_NETDEV")], how);
    for number in 0..MESSAGES {
        source.write_at(0, &message(number, LENGTH)).unwrap();
        let slices = [source.slice(..).unwrap()];
        a.qp.post_send(&SendRequest::send_with_imm(number as u64, &slices, number as u32).signaled()).unwrap();
        assert_eq!(a.completion().success().unwrap().wr_id(), number as u64);
    }
    drop(disturbance);
    let take = |wr_id: u64, success: &Success<'_>| {
        assert_eq!(success.byte_len(), Some(LENGTH as u32));
        target.to_vec(wr_id as usize * LENGTH..(wr_id as usize + 1) * LENGTH).unwrap()
    };
    let arrived = arrivals(&b, LENGTH, take);
    for side in [&a, &b] {
        assert_eq!(side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
    arrived
}

/// Sends datagrams while the wire is disturbed; those that arrive.
fn datagrams(how: &str) -> Vec<usize> {
    const LENGTH: usize = 1000;
    const SLOT: usize = Grh::LEN + LENGTH;
    const QKEY: u32 = 0x1111_1111;
    let wide = |builder: QueuePairBuilder<Ud>| builder.max_send_wr(8).max_recv_wr(MESSAGES as u32);
    let [a, b] = [open(), open_peer()].map(|context| Side::of(context, wide));
    let (from, to) = (a.local(), b.local());
    a.qp.activate(&from, QKEY).unwrap();
    b.qp.activate(&to, QKEY).unwrap();
    let ah = a.pd.create_address_handle_to(&from, &to.endpoint).unwrap();
    let mut source = a.region(LENGTH, RW);
    let target = b.region(MESSAGES * SLOT, RW);
    let mut receives = ReceiveSlots::new(target.hold(..).unwrap(), SLOT, 0).unwrap();
    assert_eq!(receives.refill(&b.qp).unwrap(), MESSAGES);
    let disturbance = Disturbance::of([setting("RDMA_TEST_NETDEV")], how);
    for number in 0..MESSAGES {
        source.write_at(0, &message(number, LENGTH)).unwrap();
        let slices = [source.slice(..).unwrap()];
        let imm_data = number as u32;
        let request = SendRequest::send_to_with_imm(number as u64, &slices, &ah, b.qp.qp_num(), QKEY, imm_data);
        a.qp.post_send(&request.signaled()).unwrap();
        assert_eq!(a.completion().success().unwrap().wr_id(), number as u64);
    }
    drop(disturbance);
    let take = |wr_id: u64, success: &Success<'_>| {
        let datagram = success.datagram().unwrap();
        assert_eq!((datagram.source_qp_num(), datagram.payload_len()), (a.qp.qp_num(), LENGTH));
        target.to_vec(datagram.payload_at(wr_id as usize * SLOT)).unwrap()
    };
    let arrived = arrivals(&b, LENGTH, take);
    for side in [&a, &b] {
        assert_eq!(side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
    arrived
}

#[test]
fn a_message_of_uc_arrives_whole_or_not_at_all() {
    check(&messages_of_uc("loss 20%"));
}

#[test]
fn a_datagram_that_is_lost_is_missed_by_nobody() {
    check(&datagrams("loss 20%"));
}

/// Nobody promises that such a message comes once, or in its order; each that comes was looked at.
const MIXED: [&str; 2] = ["duplicate 20%", "delay 1ms reorder 25% 50%"];

#[test]
fn a_message_of_uc_is_whole_though_packets_come_twice_or_overtake_each_other() {
    for how in MIXED {
        let arrived = messages_of_uc(how);
        assert!(arrived.len() >= 10, "{how}: {arrived:?}");
    }
}

#[test]
fn a_datagram_is_never_mixed_with_another_though_packets_come_twice_or_overtake_each_other() {
    for how in MIXED {
        let mut arrived = datagrams(how);
        assert!(arrived.len() >= 10, "{how}: {arrived:?}");
        // None was lost, but for lack of a receive where others came twice.
        arrived.sort_unstable();
        arrived.dedup();
        assert!(arrived.len() >= 70, "{how}: {arrived:?}");
    }
}
