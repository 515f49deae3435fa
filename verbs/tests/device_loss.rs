//! The unreliable transports on a wire that loses, doubles or reorders packets: what arrives is whole, the rest is gone without a word.

mod harness;

use std::time::{Duration, Instant};

use verbs::*;

use harness::link::Disturbance;
use harness::*;

const MESSAGES: usize = 100;

/// What is sent as message `number`, in `length` bytes.
fn message(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (number * 31 + index * 7) as u8).collect()
}

/// All messages and the mark, one after another.
fn message_region<T: Transport>(side: &Side<T>, length: usize) -> MemoryRegion<Vec<u8>> {
    let mut region = side.region((MESSAGES + 1) * length, RW);
    for number in (0..MESSAGES).chain([MARK]) {
        region.write_at(place(number, length).start, &message(number, length)).unwrap();
    }
    region
}

/// Where a message is in there.
fn place(number: usize, length: usize) -> std::ops::Range<usize> {
    let index = number.min(MESSAGES);
    index * length..(index + 1) * length
}

/// What is sent until one has arrived: what was sent before it has arrived then, or never will.
const MARK: usize = 1 << 20;
/// Each message may come twice, and marks follow.
const RECEIVES: usize = 4 * MESSAGES;

/// What arrives at `side`, by the immediate data of the messages.
struct Arrivals<'a, T: Transport, F: Fn(u64, &Success<'_>) -> Vec<u8>> {
    side: &'a Side<T>,
    length: usize,
    /// Copies a message out.
    take: F,
    numbers: Vec<usize>,
}

impl<T: Transport, F: Fn(u64, &Success<'_>) -> Vec<u8>> Arrivals<'_, T, F> {
    /// Looks at what arrives until it is enough, or none has come for so long. Tells whether a mark was among it.
    fn look(&mut self, pause: Duration, is_enough: impl Fn(&[usize]) -> bool) -> bool {
        let mut room = [WorkCompletion::default(); 16];
        let mut is_marked = false;
        while !is_enough(&self.numbers) {
            let some = self.side.cq.wait(&mut room, Some(pause)).unwrap();
            if some.is_empty() {
                break;
            }
            for completion in some {
                let success = completion.success().unwrap();
                let number = success.imm_data().unwrap() as usize;
                let expected = message(number, self.length);
                assert!((self.take)(completion.wr_id(), &success) == expected, "message {number} is not whole");
                match number {
                    MARK => is_marked = true,
                    number => self.numbers.push(number),
                }
            }
        }
        is_marked
    }

    /// Marks the end, and takes all that comes before it.
    fn end(&mut self, send: impl Fn(usize)) {
        let deadline = Instant::now() + LIMIT;
        // At most as many as there are receives for.
        for _ in 0..MESSAGES {
            send(MARK);
            if self.look(Duration::from_millis(500), |_| false) {
                return;
            }
            assert!(Instant::now() < deadline, "{:?}", self.numbers);
        }
    }
}

/// How the wire is disturbed, and whether all that is sent arrives nevertheless.
#[derive(Clone, Copy)]
struct How {
    wire: &'static str,
    all_arrive: bool,
}

impl How {
    /// Sends all messages while the wire is disturbed; those that arrive.
    fn send<T: Transport>(
        self,
        mut arrivals: Arrivals<'_, T, impl Fn(u64, &Success<'_>) -> Vec<u8>>,
        send: impl Fn(usize),
    ) -> Vec<usize> {
        let disturbance = Disturbance::of_both_ends(self.wire);
        for number in 0..MESSAGES {
            send(number);
            // The completion queue is not to overflow.
            arrivals.look(Duration::ZERO, |_| false);
        }
        if self.all_arrive {
            // What the wire still holds when it is disturbed no more is lost.
            arrivals.look(LIMIT, |numbers| (0..MESSAGES).all(|number| numbers.contains(&number)));
        }
        drop(disturbance);
        arrivals.end(send);
        arrivals.numbers
    }
}

fn check(arrived: &[usize]) {
    assert!(arrived.is_sorted_by(|one, next| one < next), "{arrived:?}");
    assert!((10..MESSAGES).contains(&arrived.len()), "{} of {MESSAGES} have arrived", arrived.len());
}

/// How many there are, each of which has arrived once. (That they come in their order is not promised.)
fn are_different(mut arrived: Vec<usize>) -> usize {
    let count = arrived.len();
    arrived.sort_unstable();
    arrived.dedup();
    assert_eq!(arrived.len(), count, "{arrived:?}");
    count
}

/// Sends messages of UC while the wire is disturbed; those that arrive.
fn messages_of_uc(how: How) -> Vec<usize> {
    // Three packets each.
    const LENGTH: usize = 10_000;
    let wide = |builder: QueuePairBuilder<Uc>| builder.max_send_wr(8).max_recv_wr(RECEIVES as u32);
    let sides = [open(), open_peer()].map(|context| Side::of(context, wide));
    connect(&sides[0], &sides[1], &ConnectOptions::default());
    let [a, b] = sides;
    // A message stays as it is until it is sent.
    let messages = message_region(&a, LENGTH);
    let target = b.region(RECEIVES * LENGTH, RW);
    for number in 0..RECEIVES {
        let slices = [target.slice(number * LENGTH..(number + 1) * LENGTH).unwrap()];
        b.qp.post_receive(&ReceiveRequest::new(number as u64, &slices)).unwrap();
    }
    let send = |number: usize| {
        let slices = [messages.slice(place(number, LENGTH)).unwrap()];
        a.qp.post_send(&SendRequest::send_with_imm(number as u64, &slices, number as u32).signaled()).unwrap();
        assert_eq!(a.completion().success().unwrap().wr_id(), number as u64);
    };
    let take = |wr_id: u64, success: &Success<'_>| {
        assert_eq!(success.byte_len(), Some(LENGTH as u32));
        target.to_vec(wr_id as usize * LENGTH..(wr_id as usize + 1) * LENGTH).unwrap()
    };
    let arrivals = Arrivals { side: &b, length: LENGTH, take, numbers: Vec::new() };
    let arrived = how.send(arrivals, send);
    for side in [&a, &b] {
        assert_eq!(side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
    arrived
}

/// Sends datagrams while the wire is disturbed; those that arrive.
fn datagrams(how: How) -> Vec<usize> {
    const LENGTH: usize = 1000;
    const SLOT: usize = Grh::LEN + LENGTH;
    const QKEY: u32 = 0x1111_1111;
    let wide = |builder: QueuePairBuilder<Ud>| builder.max_send_wr(8).max_recv_wr(RECEIVES as u32);
    let [a, b] = [open(), open_peer()].map(|context| Side::of(context, wide));
    let (from, to) = (a.local(), b.local());
    a.qp.activate(&from, QKEY).unwrap();
    b.qp.activate(&to, QKEY).unwrap();
    let ah = a.pd.create_address_handle_to(&from, &to.endpoint).unwrap();
    let messages = message_region(&a, LENGTH);
    let target = b.region(RECEIVES * SLOT, RW);
    let mut receives = ReceiveSlots::new(target.hold(..).unwrap(), SLOT, 0).unwrap();
    assert_eq!(receives.refill(&b.qp).unwrap(), RECEIVES);
    let send = |number: usize| {
        let slices = [messages.slice(place(number, LENGTH)).unwrap()];
        let imm_data = number as u32;
        let request = SendRequest::send_to_with_imm(number as u64, &slices, &ah, b.qp.qp_num(), QKEY, imm_data);
        a.qp.post_send(&request.signaled()).unwrap();
        assert_eq!(a.completion().success().unwrap().wr_id(), number as u64);
    };
    let take = |wr_id: u64, success: &Success<'_>| {
        let datagram = success.datagram().unwrap();
        assert_eq!((datagram.source_qp_num(), datagram.payload_len()), (a.qp.qp_num(), LENGTH));
        target.to_vec(datagram.payload_at(wr_id as usize * SLOT)).unwrap()
    };
    let arrivals = Arrivals { side: &b, length: LENGTH, take, numbers: Vec::new() };
    let arrived = how.send(arrivals, send);
    for side in [&a, &b] {
        assert_eq!(side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
    arrived
}

const LOSSY: How = How { wire: "loss 20%", all_arrive: false };

#[test]
fn a_message_of_uc_arrives_whole_or_not_at_all() {
    check(&messages_of_uc(LOSSY));
}

#[test]
fn a_datagram_that_is_lost_is_missed_by_nobody() {
    let arrived = datagrams(LOSSY);
    assert!((10..MESSAGES).contains(&arrived.len()), "{} of {MESSAGES} have arrived", arrived.len());
    are_different(arrived);
}

#[test]
fn datagrams_that_are_late_arrive_each_once_and_messages_of_uc_in_their_order() {
    let arrived = datagrams(How { wire: "delay 5ms", all_arrive: true });
    assert_eq!(are_different(arrived), MESSAGES);
    // Two packets that the kernel hands over on two processors may change their places, which costs the message. Those that the wire holds
    // when it is whole again are lost.
    let arrived = messages_of_uc(How { wire: "delay 5ms", all_arrive: false });
    assert!(arrived.is_sorted_by(|one, next| one < next) && arrived.len() >= 10, "{arrived:?}");
}

/// Nobody promises that what is sent so comes once, or in its order; each message that comes was looked at.
const MIXED: [&str; 3] = ["duplicate 20%", "delay 1ms reorder 25% 50%", "delay 1ms reorder 25% 50% duplicate 20%"];

#[test]
fn a_message_of_uc_is_whole_though_packets_come_twice_or_overtake_each_other() {
    for wire in MIXED {
        let arrived = messages_of_uc(How { wire, all_arrive: false });
        assert!(arrived.len() >= 10, "{wire}: {arrived:?}");
    }
}

#[test]
fn a_datagram_is_never_mixed_with_another_nor_lost_though_packets_come_twice_or_overtake_each_other() {
    for wire in MIXED {
        let mut arrived = datagrams(How { wire, all_arrive: true });
        assert_eq!(arrived.len() > MESSAGES, wire.contains("duplicate"), "{wire}: {arrived:?}");
        // Whether they overtake each other depends on how fast they are sent.
        arrived.sort_unstable();
        arrived.dedup();
        assert_eq!(arrived, (0..MESSAGES).collect::<Vec<_>>(), "{wire}");
    }
}
