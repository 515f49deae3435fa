//! Ranges of regions and of what is cut from them, beside a model that counts in 128 bits.

use std::ops::Bound;

use proptest::prelude::*;
use verbs::*;

use crate::{Bench, for_all};

pub(crate) type Range = (Bound<usize>, Bound<usize>);

/// Where a range begins and ends, if it lies in `length` bytes.
pub(crate) fn model(range: Range, length: u128) -> Option<(u128, u128)> {
    let start = match range.0 {
        Bound::Included(start) => start as u128,
        Bound::Excluded(start) => start as u128 + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.1 {
        Bound::Included(end) => end as u128 + 1,
        Bound::Excluded(end) => end as u128,
        Bound::Unbounded => length,
    };
    (start <= end && end <= length).then_some((start, end))
}

/// Numbers about a length, and the largest.
pub(crate) fn numbers(length: usize) -> impl Strategy<Value = usize> + Clone {
    prop_oneof![4 => 0..=length + 2, 1 => any::<usize>(), 1 => usize::MAX - 2..=usize::MAX]
}

pub(crate) fn ranges(length: usize) -> impl Strategy<Value = Range> + Clone {
    let bounds = numbers(length).prop_flat_map(|number| {
        prop_oneof![Just(Bound::Included(number)), Just(Bound::Excluded(number)), Just(Bound::Unbounded)]
    });
    (bounds.clone(), bounds)
}

pub(crate) const LENGTH: usize = 300;

/// The address and the length of an entry.
fn place(slice: &LocalSlice<'_>) -> (u128, u128) {
    let raw = slice.as_raw();
    (raw.addr.into(), raw.length.into())
}

fn expected(base: u128, range: Option<(u128, u128)>) -> Option<(u128, u128)> {
    range.map(|(start, end)| (base + start, end - start))
}

#[test]
fn a_slice_lies_in_its_region_and_its_part_in_it() {
    for_all(
        (
            // Such that the region lies at the same offset in its page, and may end at the end of the address space.
            prop_oneof![any::<u64>(), Just(u64::MAX)],
            ranges(LENGTH),
            ranges(LENGTH),
            numbers(LENGTH),
        ),
        |(pages, outer, inner, middle)| {
            let bench = Bench::new();
            let mapping = Mapping::new(LENGTH).unwrap();
            let iova = pages & !4095;
            let mut region = bench
                .pd
                .register_with_iova(mapping, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ, iova)
                .unwrap();
            let base = u128::from(iova);
            let range = model(outer, LENGTH as u128);
            let slice = region.slice(outer);
            prop_assert_eq!(slice.as_ref().ok().map(place), expected(base, range));
            prop_assert_eq!(
                region.remote_slice(outer).ok().map(|remote| (remote.address().into(), remote.len().into())),
                expected(base, range)
            );
            prop_assert_eq!(
                region.to_vec(outer).ok().map(|bytes| bytes.len() as u128),
                range.map(|(start, end)| end - start)
            );
            if let (Ok(slice), Some((start, end))) = (slice, range) {
                let part = model(inner, end - start);
                prop_assert_eq!(slice.slice(inner).ok().as_ref().map(place), expected(base + start, part));
                let remote = region.remote_slice(outer).unwrap().slice(inner);
                prop_assert_eq!(
                    remote.ok().map(|part| (part.address().into(), part.len().into())),
                    expected(base + start, part)
                );
                bench.qp.post_send(&SendRequest::send(1, &[slice]).signaled()).unwrap();
                // A slot of a prepared request is of its region, wherever it was before.
                let mut prepared = PreparedSend::<1, Rc>::send(2, [region.hold(outer).unwrap()]).signaled();
                prop_assert_eq!(prepared.set_range(0, inner).is_ok(), model(inner, LENGTH as u128).is_some());
                bench.qp.post_prepared_send(&prepared).unwrap();
            } else {
                prop_assert!(region.hold(outer).is_err());
            }
            // The two halves are disjoint, and each has addresses of its own.
            match region.as_local_mut().split_at_mut(middle) {
                Ok((front, back)) => {
                    prop_assert_eq!((front.len(), back.len()), (middle, LENGTH - middle));
                    prop_assert_eq!(
                        back.slice(inner).ok().as_ref().map(place),
                        expected(base + middle as u128, model(inner, back.len() as u128))
                    );
                }
                Err(error) => {
                    let is_told = matches!(error, Error::OutOfRange { .. });
                    prop_assert!(middle > LENGTH && is_told);
                }
            }
            // The provider looks whether what is posted is registered.
            bench.provider.assert_no_violation();
            Ok(())
        },
    );
}

#[test]
fn bytes_are_copied_where_they_are_or_not_at_all() {
    for_all(
        (numbers(LENGTH), proptest::collection::vec(any::<u8>(), 0..=LENGTH + 1), 0..=LENGTH),
        |(offset, bytes, middle)| {
            let bench = Bench::new();
            let mut region = bench.pd.register(vec![0; LENGTH], AccessFlags::LOCAL_WRITE).unwrap();
            let fits = offset as u128 + bytes.len() as u128 <= LENGTH as u128;
            prop_assert_eq!(region.write_at(offset, &bytes).is_ok(), fits);
            let mut expected = vec![0; LENGTH];
            if fits {
                expected[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            prop_assert_eq!(region.to_vec(..).unwrap(), &expected[..]);
            let mut back = vec![0; bytes.len()];
            prop_assert_eq!(region.read_at(offset, &mut back).is_ok(), fits);
            if fits {
                prop_assert_eq!(&back, &bytes);
            }
            let (mut front, mut rest) = region.as_local_mut().split_at_mut(middle).unwrap();
            front.fill(1);
            rest.fill(2);
            let filled: Vec<u8> = (0..LENGTH).map(|place| if place < middle { 1 } else { 2 }).collect();
            prop_assert_eq!(region.deregister().unwrap(), filled);
            Ok(())
        },
    );
}

#[test]
fn a_region_ends_before_the_address_space_does() {
    for_all((prop_oneof![any::<u64>(), u64::MAX - 8192..=u64::MAX], 1usize..8192), |(iova, length)| {
        let bench = Bench::new();
        let mapping = Mapping::new(length).unwrap();
        let fits = u128::from(iova) + length as u128 <= u128::from(u64::MAX);
        match bench.pd.register_with_iova(mapping, AccessFlags::empty(), iova) {
            Ok(region) => {
                prop_assert!(fits && iova % 4096 == 0);
                prop_assert_eq!(place(&region.slice(length..).unwrap()), (u128::from(iova) + length as u128, 0));
            }
            Err(refused) => {
                prop_assert_eq!(refused.buffer.len(), length);
                prop_assert!(!fits || iova % 4096 != 0, "{}", refused.error);
            }
        }
        Ok(())
    });
}

#[test]
fn a_remote_slice_ends_before_the_address_space_does() {
    for_all(
        (prop_oneof![any::<u64>(), u64::MAX - 4..=u64::MAX], prop_oneof![any::<u64>(), 0u64..8], ranges(8)),
        |(address, length, range)| {
            let fits = u128::from(address) + u128::from(length) <= u128::from(u64::MAX);
            let slice = RemoteSlice::new(address, length, 7);
            prop_assert_eq!(slice.is_some(), fits);
            if let Some(slice) = slice {
                let part = slice.slice(range);
                let expected = expected(address.into(), model(range, length.into()));
                prop_assert_eq!(part.ok().map(|part| (part.address().into(), part.len().into())), expected);
            }
            Ok(())
        },
    );
}

#[test]
fn any_range_of_all_memory_has_32_bits_or_is_refused() {
    for_all(ranges(usize::MAX - 2), |range| {
        let bench = Bench::new();
        let region = bench.pd.create_null_memory_region().unwrap();
        let expected =
            expected(0, model(range, usize::MAX as u128)).filter(|(_, length)| *length <= u128::from(u32::MAX));
        prop_assert_eq!(region.slice(range).ok().as_ref().map(place), expected);
        prop_assert_eq!(region.hold(range).is_ok(), expected.is_some());
        Ok(())
    });
}

#[test]
fn a_window_lies_in_its_region() {
    for_all(ranges(LENGTH), |range| {
        let bench = Bench::new();
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
        let region = bench.pd.register(vec![0; LENGTH], access).unwrap();
        let expected =
            expected(region.address().into(), model(range, LENGTH as u128)).filter(|(_, length)| *length > 0);
        let request = BindRequest::new(1, &region, range, AccessFlags::REMOTE_WRITE);
        prop_assert_eq!(request.is_ok(), expected.is_some());
        if let Ok(request) = request {
            let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
            let remote = bench.qp.post_bind(&mut window, &request.signaled()).unwrap();
            prop_assert_eq!(Some((remote.address().into(), remote.len().into())), expected);
        }
        bench.provider.assert_no_violation();
        Ok(())
    });
}
