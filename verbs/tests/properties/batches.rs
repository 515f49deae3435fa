//! A batch does what a list of requests does, in whatever order it is filled, posted, cut and begun anew.

use std::collections::HashMap;
use std::mem::ManuallyDrop;

use proptest::prelude::*;
use verbs::*;

use crate::null_provider::{BadWr, Refusal};
use crate::{Bench, for_all};

#[derive(Clone, Debug)]
enum Step {
    /// A request with this many slices, which are copied.
    PushWith(usize),
    /// One with a list of its own.
    Push,
    Inline(usize),
    /// An inline request whose data is replaced by this many slices of a region; the last of them has more than would go inline.
    InlineWith(usize),
    /// An atomic operation with slices of these lengths, and this many bytes behind a word, whose list is copied or not.
    Atomic(Vec<usize>, u64, bool),
    /// Posts all of it; the queue refuses what comes after so many, if any.
    Post(Option<usize>),
    Skip(usize),
    Begin,
    /// The chain is forgotten, and the batch begun anew.
    Forget,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..5).prop_map(Step::PushWith),
        3 => Just(Step::Push),
        2 => (0usize..80).prop_map(Step::Inline),
        2 => (0usize..5).prop_map(Step::InlineWith),
        3 => (proptest::collection::vec(0usize..9, 0..4), prop_oneof![3 => Just(0u64), 1 => 0u64..8], any::<bool>())
            .prop_map(|(lengths, askew, copied)| Step::Atomic(lengths, askew, copied)),
        2 => (prop_oneof![Just(vec![8]), Just(vec![4, 4]), Just(vec![1, 3, 4])], any::<bool>())
            .prop_map(|(lengths, copied)| Step::Atomic(lengths, 0, copied)),
        3 => proptest::option::of(0usize..12).prop_map(Step::Post),
        2 => (0usize..12).prop_map(Step::Skip),
        1 => Just(Step::Begin),
        1 => Just(Step::Forget),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What a request was made with: its identifier, how many bytes it has, and whether a queue pair takes it.
type Expected = (u64, usize, bool);

/// How many bytes the queue pair takes inline.
const MOST: usize = 64;

#[test]
fn a_batch_is_posted_as_a_list_would_be() {
    for_all((0usize..6, steps()), |(capacity, steps)| {
        let bench = Bench::new();
        let region = bench.pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE).unwrap();
        let own = [region.slice(4000..4096).unwrap()];
        let slices: Vec<_> = (0..4).map(|index| region.slice(index * 100..index * 100 + 10 + index).unwrap()).collect();
        let bytes = [7; 80];
        let inline: Vec<_> = (0..80).map(|length| [InlineSlice::new(&bytes[..length])]).collect();
        let list_of = |lengths: &Vec<usize>| lengths.iter().map(|length| region.slice(..*length).unwrap()).collect();
        let words: HashMap<Vec<usize>, Vec<LocalSlice<'_>>> = steps
            .iter()
            .filter_map(|step| if let Step::Atomic(lengths, ..) = step { Some(lengths) } else { None })
            .map(|lengths| (lengths.clone(), list_of(lengths)))
            .collect();
        let mut batch = SendBatch::with_capacity(capacity);
        let mut chain = batch.begin();
        let mut model: Vec<Expected> = Vec::new();
        for (wr_id, step) in steps.into_iter().enumerate() {
            let wr_id = wr_id as u64;
            match step {
                Step::PushWith(count) => {
                    let count = count.min(slices.len());
                    chain.push_with(SendRequest::send(wr_id, &[]).signaled(), &slices[..count]);
                    model.push((wr_id, (0..count).map(|index| 10 + index).sum(), true));
                }
                Step::Push => {
                    chain.push(SendRequest::send(wr_id, &own).signaled());
                    model.push((wr_id, 96, true));
                }
                Step::Inline(length) => {
                    chain.push(SendRequest::send_inline(wr_id, &inline[length]).signaled());
                    model.push((wr_id, length, length <= MOST));
                }
                Step::InlineWith(count) => {
                    let list = [&slices[..count.min(3)], if count > 3 { &own[..] } else { &[] }].concat();
                    chain.push_with(SendRequest::send_inline(wr_id, &inline[79]).signaled(), &list);
                    model.push((wr_id, list.iter().map(|slice| slice.len() as usize).sum(), true));
                }
                Step::Atomic(lengths, askew, copied) => {
                    let list = &words[&lengths];
                    let remote = RemoteSlice::new(0x1000 + askew, 8, 7).unwrap();
                    match copied {
                        true => chain.push_with(SendRequest::fetch_and_add(wr_id, &[], remote, 1).signaled(), list),
                        false => chain.push(SendRequest::compare_and_swap(wr_id, list, remote, 1, 2).signaled()),
                    }
                    let length = lengths.iter().sum();
                    model.push((wr_id, length, length == 8 && askew == 0));
                }
                Step::Post(refused_after) => {
                    if let Some(after) = refused_after {
                        bench.provider.refuse(Refusal { after, errno: libc::EIO, bad_wr: BadWr::Refused });
                    }
                    let unfit = model.iter().position(|(_, _, fits)| !fits).unwrap_or(model.len());
                    let taken = refused_after.map_or(unfit, |after| after.min(unfit));
                    match bench.qp.post_send_chain(&mut chain) {
                        Ok(()) => prop_assert_eq!(taken, model.len()),
                        Err(error) => {
                            prop_assert_eq!((error.accepted(), error.requests()), (Some(taken), model.len()));
                            prop_assert!(taken < model.len());
                        }
                    }
                    let completed: Vec<_> =
                        bench.completions().iter().map(|c| (c.wr_id(), c.as_raw().byte_len as usize)).collect();
                    let expected: Vec<_> = model[..taken].iter().map(|(wr_id, length, _)| (*wr_id, *length)).collect();
                    prop_assert_eq!(completed, expected);
                    bench.provider.refuse_nothing();
                }
                Step::Skip(count) => {
                    chain.skip(count);
                    model.drain(..count.min(model.len()));
                }
                Step::Begin => {
                    chain = batch.begin();
                    model.clear();
                }
                Step::Forget => {
                    let _forgotten = ManuallyDrop::new(chain);
                    chain = batch.begin();
                    model.clear();
                }
            }
            prop_assert_eq!((chain.len(), chain.is_empty()), (model.len(), model.is_empty()));
        }
        bench.provider.assert_no_violation();
        Ok(())
    });
}
