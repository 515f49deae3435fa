use verbs::*;

use crate::null_provider::{BadWr, Refusal};
use crate::{Bench, connect};

/// A queue pair of `slots` slots.
fn bench(slots: u32) -> Bench {
    Bench::build(|builder| builder.max_send_wr(slots))
}

/// Polls and retires; how many completions there were, and how many requests they tell of.
fn retire(bench: &Bench, sends: &mut SelectiveSignaling) -> (usize, u32) {
    let mut room = [WorkCompletion::default(); 64];
    let completions = bench.cq.poll(&mut room).unwrap();
    (completions.len(), completions.iter().map(|completion| sends.retire(completion)).sum())
}

fn request() -> SendRequest<'static> {
    SendRequest::send(99, &[])
}

#[test]
fn each_nth_request_is_signaled_and_frees_those_before_it() {
    let bench = bench(16);
    let mut sends = SelectiveSignaling::new(&bench.qp, 4, 1000);
    assert_eq!((sends.free_slots(), sends.outstanding(), sends.next_wr_id()), (16, 0, 1000));
    for round in 0..10 {
        for _ in 0..3 {
            sends.post(&bench.qp, &mut request()).unwrap();
        }
        assert_eq!(bench.polled(), []);
        sends.post(&bench.qp, &mut request().signaled()).unwrap();
        assert_eq!((sends.free_slots(), sends.outstanding()), (12, 4));
        let mut room = [WorkCompletion::default(); 4];
        let completions = bench.cq.poll(&mut room).unwrap();
        assert_eq!(completions.iter().map(WorkCompletion::wr_id).collect::<Vec<_>>(), [1000 + 4 * round + 3]);
        assert_eq!(sends.retire(&completions[0]), 4);
        // Again, it tells of nothing.
        assert_eq!(sends.retire(&completions[0]), 0);
        assert_eq!(sends.free_slots(), 16);
    }
}

#[test]
fn a_queue_never_fills_up_for_ever_whatever_is_asked_for() {
    for slots in 1..=9 {
        for every in [0, 1, 2, 3, 5, 8, u32::MAX] {
            let bench = bench(slots);
            let mut sends = SelectiveSignaling::new(&bench.qp, every, 0);
            for wr_id in 0..1000 {
                if sends.free_slots() == 0 {
                    assert_eq!(sends.post(&bench.qp, &mut request()).unwrap_err().kind(), PostErrorKind::QueueFull);
                    assert_ne!(retire(&bench, &mut sends), (0, 0), "{slots} slots, every {every}");
                }
                assert_eq!(sends.next_wr_id(), wr_id);
                sends.post(&bench.qp, &mut request()).unwrap();
            }
        }
    }
}

#[test]
fn a_full_queue_is_told_without_asking_the_device() {
    let bench = bench(4);
    let mut sends = SelectiveSignaling::new(&bench.qp, 2, 0);
    sends.post_chain(&bench.qp, &mut [request(), request(), request()]).unwrap();
    let error = sends.post_chain(&bench.qp, &mut [request(), request()]).unwrap_err();
    assert_eq!((error.kind(), error.accepted(), error.requests()), (PostErrorKind::QueueFull, Some(0), 2));
    assert!(error.to_string().contains("1 of the send queue's 4 slots are free"), "{error}");
    assert_eq!(sends.next_wr_id(), 3);
    assert_eq!(retire(&bench, &mut sends), (1, 2));
    sends.post_chain(&bench.qp, &mut [request(), request()]).unwrap();
    assert_eq!(retire(&bench, &mut sends), (1, 2));
    assert_eq!(sends.outstanding(), 1);
}

#[test]
fn the_next_request_can_be_signaled_out_of_turn() {
    let bench = bench(16);
    let mut sends = SelectiveSignaling::new(&bench.qp, 8, 0);
    sends.post(&bench.qp, &mut request()).unwrap();
    sends.signal_next();
    sends.post_chain(&bench.qp, &mut [request(), request(), request()]).unwrap();
    assert_eq!(retire(&bench, &mut sends), (1, 4));
    // The count begins anew.
    for _ in 0..7 {
        sends.post(&bench.qp, &mut request()).unwrap();
    }
    assert_eq!(retire(&bench, &mut sends), (0, 0));
    sends.post(&bench.qp, &mut request()).unwrap();
    assert_eq!(retire(&bench, &mut sends), (1, 8));
}

#[test]
fn prepared_requests_are_signaled_in_their_turn_only() {
    let bench = bench(16);
    let mut sends = SelectiveSignaling::new(&bench.qp, 3, 0);
    let mut prepared = PreparedSend::send(0, [bench.region.hold(..8).unwrap()]).signaled();
    for _ in 0..9 {
        sends.post_prepared(&bench.qp, &mut prepared).unwrap();
    }
    assert_eq!(bench.polled(), [2, 5, 8]);
}

#[test]
fn what_was_taken_of_a_refused_chain_is_counted() {
    for after in 0..6 {
        let bench = bench(16);
        let mut sends = SelectiveSignaling::new(&bench.qp, 4, 0);
        bench.provider.refuse(Refusal { after, errno: libc::EIO, bad_wr: BadWr::Refused });
        let mut chain: [_; 6] = std::array::from_fn(|_| request());
        assert_eq!(sends.post_chain(&bench.qp, &mut chain).unwrap_err().accepted(), Some(after));
        assert_eq!((sends.outstanding() as usize, sends.next_wr_id() as usize), (after, after));
        // The fourth request is signaled, whichever call it is posted by.
        sends.post_chain(&bench.qp, &mut chain).unwrap();
        let signaled: Vec<u64> = (0..after as u64 + 6).filter(|wr_id| wr_id % 4 == 3).collect();
        assert_eq!(bench.polled(), signaled);
    }
}

#[test]
fn a_refused_request_is_not_counted_and_one_of_unknown_fate_is() {
    let bench = bench(16);
    let mut sends = SelectiveSignaling::new(&bench.qp, 1, 0);
    bench.provider.refuse(Refusal { after: 0, errno: libc::EIO, bad_wr: BadWr::Refused });
    sends.post(&bench.qp, &mut request()).unwrap_err();
    assert_eq!((sends.outstanding(), sends.next_wr_id()), (0, 0));
    bench.provider.refuse(Refusal { after: 0, errno: libc::EIO, bad_wr: BadWr::Null });
    sends.post(&bench.qp, &mut request()).unwrap_err();
    bench.provider.refuse(Refusal { after: 1, errno: libc::EIO, bad_wr: BadWr::Null });
    sends.post_chain(&bench.qp, &mut [request(), request()]).unwrap_err();
    assert_eq!((sends.outstanding(), sends.next_wr_id()), (3, 3));
    sends.post(&bench.qp, &mut request()).unwrap();
    retire(&bench, &mut sends);
    assert_eq!(sends.outstanding(), 0);
}

#[test]
fn completions_of_others_are_not_counted() {
    let bench = bench(16);
    let other = QueuePair::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    connect(&other);
    let mut sends = SelectiveSignaling::new(&bench.qp, 1, 1 << 32);
    sends.post(&bench.qp, &mut request()).unwrap();
    let mut room = [WorkCompletion::default(); 8];
    bench.cq.poll(&mut room).unwrap();
    sends.post(&bench.qp, &mut request()).unwrap();
    // A receive of this queue pair, and a send of another one with the same identifier.
    bench.qp.post_receive(&ReceiveRequest::new(0, &[])).unwrap();
    other.post_send(&SendRequest::send((1 << 32) + 1, &[]).signaled()).unwrap();
    let completions = bench.cq.poll(&mut room).unwrap();
    let retired: Vec<u32> = completions.iter().map(|completion| sends.retire(completion)).collect();
    // The completion of the first send was polled away; that of the second one tells of both.
    assert_eq!(retired, [2, 0, 0]);
    let error = sends.post(&other, &mut request()).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
    assert!(error.to_string().contains("are counted, and this is queue pair"), "{error}");
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_are_not_counted_for_the_next_one_of_that_number() {
    let bench = bench(16);
    let slots = |first| ReceiveSlots::new(bench.region.hold(..4 * 64).unwrap(), 64, first).unwrap();
    let numbered = |qp_num| {
        bench.provider.give_number(qp_num);
        let qp = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).max_send_wr(16).build().unwrap();
        connect(&qp);
        assert_eq!(qp.qp_num(), qp_num);
        qp
    };
    let old = numbered(0x77);
    let (mut sends, mut receives) = (SelectiveSignaling::new(&old, 1, 0), slots(1 << 32));
    sends.post_chain(&old, &mut [request(), request(), request()]).unwrap();
    assert_eq!(receives.refill(&old).unwrap(), 4);
    // An event, too, is of one queue pair and not of a number.
    bench.provider.raise(&bench.context, AsyncEventType::QUEUE_PAIR_FATAL, old.as_raw() as usize);
    let event = bench.context.try_async_event().unwrap().unwrap();
    let old_id = old.id();
    assert!(event.is_for(&old));
    drop(old);
    // Seven completions wait when it goes. The next one goes on counting.
    let next = numbered(0x77);
    let mut next_sends = SelectiveSignaling::new(&next, 1, sends.next_wr_id());
    let mut next_receives = slots((1 << 32) + 4);
    next_sends.post_chain(&next, &mut [request(), request()]).unwrap();
    assert_eq!(next_receives.refill(&next).unwrap(), 4);
    let mut room = [WorkCompletion::default(); 64];
    let completions = bench.cq.poll(&mut room).unwrap();
    assert_eq!(completions.len(), 3 + 4 + 2 + 4);
    let (gone, own) = completions.split_at(7);
    for completion in gone {
        assert_eq!(completion.qp_num(), 0x77);
        assert_eq!((next_sends.retire(completion), next_receives.take(completion)), (0, None), "{completion:?}");
    }
    assert_eq!((next_sends.outstanding(), next_receives.waiting()), (2, 0));
    // They are the old ones' still, each once.
    assert_eq!(gone.iter().map(|completion| sends.retire(completion)).sum::<u32>(), 3);
    assert_eq!(gone.iter().filter_map(|completion| receives.take(completion)).count(), 4);
    assert_eq!(own.iter().map(|completion| next_sends.retire(completion)).sum::<u32>(), 2);
    assert_eq!(own.iter().filter_map(|completion| next_receives.take(completion)).count(), 4);
    assert_ne!(next.id(), old_id);
    assert!(!event.is_for(&next));
    let source = AsyncEventSource::QueuePair { qp_num: 0x77, id: Some(old_id) };
    assert_eq!(event.source(), source);
}

#[test]
fn after_a_reset_nothing_is_outstanding() {
    let bench = bench(4);
    let mut sends = SelectiveSignaling::new(&bench.qp, 2, 0);
    sends.post_chain(&bench.qp, &mut [request(), request(), request()]).unwrap();
    bench.qp.reset().unwrap();
    sends.reset();
    assert_eq!((sends.free_slots(), sends.outstanding()), (4, 0));
}

#[test]
fn identifiers_go_round() {
    let bench = bench(8);
    let mut sends = SelectiveSignaling::new(&bench.qp, 4, u64::MAX - 1);
    for _ in 0..4 {
        sends.post(&bench.qp, &mut request()).unwrap();
    }
    assert_eq!(sends.next_wr_id(), 2);
    assert_eq!(retire(&bench, &mut sends), (1, 4));
}
