//! Slots of receives, and slots of a send queue, beside models of what is where.

use std::collections::VecDeque;

use proptest::prelude::*;
use verbs::*;

use crate::null_provider::{BadWr, Refusal};
use crate::{Bench, for_all};

/// Who has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Program,
    Chain,
    Queue,
}

#[derive(Clone, Debug)]
enum Step {
    /// Refills; the queue refuses what comes after so many, if any, and says so or not.
    Refill(Option<(usize, bool)>),
    Take,
    Release(usize),
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let refused = proptest::option::weighted(0.4, (0usize..10, any::<bool>()));
    let step = prop_oneof![
        3 => refused.prop_map(Step::Refill),
        2 => Just(Step::Take),
        6 => (0usize..10).prop_map(Step::Release),
        1 => Just(Step::Reset),
    ];
    proptest::collection::vec(step, 1..60)
}

#[test]
fn a_receive_slot_is_in_one_place_at_a_time() {
    for_all((1usize..8, prop_oneof![any::<u64>(), Just(u64::MAX - 3)], steps()), |(count, first_wr_id, steps)| {
        let bench = Bench::new();
        let region = bench.pd.register(vec![0; 1024], AccessFlags::LOCAL_WRITE).unwrap();
        let mut receives = ReceiveSlots::new(region.hold(10..10 + count * 64).unwrap(), 64, first_wr_id).unwrap();
        let mut owners = vec![Owner::Chain; count];
        let mut old = Vec::new();
        for step in steps {
            match step {
                Step::Refill(refused) => {
                    let waiting = owners.iter().filter(|owner| **owner == Owner::Chain).count();
                    if let Some((after, is_told)) = refused {
                        let bad_wr = if is_told { BadWr::Refused } else { BadWr::Null };
                        bench.provider.refuse(Refusal { after, errno: libc::EIO, bad_wr });
                    }
                    let result = receives.refill(&bench.qp);
                    bench.provider.refuse_nothing();
                    match (result, refused.filter(|(after, _)| *after < waiting)) {
                        (Ok(posted), None) => prop_assert_eq!(posted, waiting),
                        (Err(error), Some((after, is_told))) => {
                            prop_assert_eq!(error.accepted(), is_told.then_some(after))
                        }
                        (result, refused) => prop_assert!(false, "{:?} {:?}", result, refused),
                    }
                    // Those that the queue took complete at once; of an unknown number, all are treated as taken.
                    let is_lost = matches!(refused, Some((after, false)) if after < waiting);
                    let completed = bench.completions();
                    if is_lost {
                        owners
                            .iter_mut()
                            .filter(|owner| **owner == Owner::Chain)
                            .for_each(|owner| *owner = Owner::Queue);
                    }
                    for completion in completed {
                        let index = completion.wr_id().wrapping_sub(first_wr_id) as usize;
                        prop_assert!(is_lost || owners[index] == Owner::Chain);
                        owners[index] = Owner::Queue;
                        old.push(completion);
                    }
                }
                Step::Take => {
                    for completion in std::mem::take(&mut old) {
                        let index = completion.wr_id().wrapping_sub(first_wr_id) as usize;
                        let range = receives.take(&completion);
                        let expected = 10 + index * 64..10 + index * 64 + 64;
                        prop_assert_eq!(range, (owners[index] == Owner::Queue).then_some(expected));
                        if owners[index] == Owner::Queue {
                            owners[index] = Owner::Program;
                        }
                        // A second time it tells of nothing.
                        prop_assert_eq!(receives.take(&completion), None);
                    }
                }
                Step::Release(index) => {
                    let is_ours = owners.get(index) == Some(&Owner::Program);
                    prop_assert_eq!(receives.release(first_wr_id.wrapping_add(index as u64)).is_ok(), is_ours);
                    if is_ours {
                        owners[index] = Owner::Chain;
                    }
                }
                Step::Reset => {
                    receives.reset();
                    old.clear();
                    owners.iter_mut().filter(|owner| **owner == Owner::Queue).for_each(|owner| *owner = Owner::Chain);
                }
            }
            prop_assert_eq!(receives.waiting(), owners.iter().filter(|owner| **owner == Owner::Chain).count());
        }
        bench.provider.assert_no_violation();
        Ok(())
    });
}

#[test]
fn a_send_queue_whose_slots_are_counted_never_overflows() {
    for_all(
        (
            1u32..20,
            any::<u32>().prop_map(|every| every % 24),
            prop_oneof![any::<u64>(), Just(u64::MAX - 5)],
            proptest::collection::vec(
                (0usize..24, any::<bool>(), proptest::option::weighted(0.2, (0usize..8, any::<bool>()))),
                1..40,
            ),
        ),
        |(slots, every, first_wr_id, steps)| {
            let bench = Bench::new();
            let qp = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).max_send_wr(slots).build().unwrap();
            let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
            qp.connect(&local, &local.endpoint, &ConnectOptions::default()).unwrap();
            let slots = qp.capabilities().max_send_wr;
            let mut sends = SelectiveSignaling::new(&qp, every, first_wr_id);
            let mut waiting: VecDeque<WorkCompletion> = VecDeque::new();
            for (count, polls, refused) in steps {
                let mut chain: Vec<SendRequest<'_>> = (0..count).map(|_| SendRequest::send(0, &[])).collect();
                let (free, next) = (sends.free_slots(), sends.next_wr_id());
                if let Some((after, is_told)) = refused {
                    let bad_wr = if is_told { BadWr::Refused } else { BadWr::Null };
                    bench.provider.refuse(Refusal { after, errno: libc::EIO, bad_wr });
                }
                let result = sends.post_chain(&qp, &mut chain);
                bench.provider.refuse_nothing();
                match result {
                    Ok(()) => prop_assert_eq!(
                        (sends.free_slots(), sends.next_wr_id()),
                        (free - count as u32, next.wrapping_add(count as u64))
                    ),
                    // The device was not asked, or has refused for the reason that it was told to.
                    Err(error) if error.kind() == PostErrorKind::QueueFull => {
                        prop_assert!(count > free as usize, "{}", error)
                    }
                    Err(error) => {
                        let counted = error.accepted().unwrap_or(count) as u32;
                        prop_assert!(
                            refused.is_some_and(|(after, _)| after < count) && sends.free_slots() == free - counted,
                            "{}",
                            error
                        );
                    }
                }
                prop_assert_eq!(sends.outstanding() + sends.free_slots(), slots);
                waiting.extend(bench.completions());
                if polls {
                    while let Some(completion) = waiting.pop_front() {
                        sends.retire(&completion);
                        // What was told once tells nothing new.
                        prop_assert_eq!(sends.retire(&completion), 0);
                    }
                }
            }
            bench.provider.assert_no_violation();
            Ok(())
        },
    );
}
