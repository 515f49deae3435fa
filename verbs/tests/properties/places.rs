//! Where bytes go: device memory, files, receives and datagrams, beside models of them.

use std::fs::File;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::FileExt as _;

use proptest::prelude::*;
use verbs::*;

use crate::ranges::{LENGTH, model, numbers, ranges};
use crate::{Bench, for_all};

#[test]
fn device_memory_is_copied_to_and_from_where_it_is_or_not_at_all() {
    const SIZE: usize = 64;
    let bytes = proptest::collection::vec(any::<u8>(), 0..=SIZE + 4);
    let steps = proptest::collection::vec((any::<bool>(), numbers(SIZE), bytes), 1..10);
    for_all((steps, ranges(SIZE)), |(steps, range)| {
        let bench = Bench::new();
        let mut memory = bench.pd.context().allocate_device_memory(SIZE, 0).unwrap();
        let mut expected = vec![0; SIZE];
        for (is_write, offset, bytes) in steps {
            let fits = offset as u128 + bytes.len() as u128 <= SIZE as u128;
            // This device copies in words.
            let is_copied = fits && offset % 4 == 0 && bytes.len() % 4 == 0;
            let mut copy = bytes.clone();
            let result = if is_write { memory.write_at(offset, &bytes) } else { memory.read_at(offset, &mut copy) };
            prop_assert_eq!(result.is_ok(), is_copied);
            match result {
                Ok(()) if is_write => expected[offset..offset + bytes.len()].copy_from_slice(&bytes),
                Ok(()) => prop_assert_eq!(&copy, &expected[offset..offset + bytes.len()]),
                Err(Error::OutOfRange { .. }) => prop_assert!(!fits),
                Err(error) => prop_assert!(fits && error.raw_os_error() == Some(libc::EINVAL), "{}", error),
            }
        }
        let mut whole = vec![0; SIZE];
        memory.read_at(0, &mut whole).unwrap();
        prop_assert_eq!(whole, expected);
        // A region of it has the range that was asked for, counted from 0.
        let wanted = model(range, SIZE as u128).filter(|(start, end)| start < end);
        let region = bench.pd.register_device_memory(&memory, range, AccessFlags::LOCAL_WRITE);
        let found = region.ok().map(|region| (region.address(), region.len() as u128));
        prop_assert_eq!(found, wanted.map(|(start, end)| (0, end - start)));
        bench.provider.assert_no_violation();
        Ok(())
    });
}

/// A file without a name, with these bytes.
fn file(bytes: &[u8]) -> File {
    // SAFETY: the name is a string that outlives the call.
    let fd = unsafe { libc::memfd_create(c"a file of a test".as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is open, and nobody else's.
    let file = unsafe { File::from_raw_fd(fd) };
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_range_of_a_region_goes_to_a_file_and_comes_from_it_or_nothing_does() {
    let offsets = prop_oneof![6 => 0u64..=2 * LENGTH as u64, 1 => u64::MAX - 4..=u64::MAX, 1 => any::<u64>()];
    let bytes = proptest::collection::vec(any::<u8>(), 0..LENGTH);
    for_all((ranges(LENGTH), offsets, bytes), |(range, offset, bytes)| {
        let bench = Bench::new();
        let mut region = bench.pd.register(vec![0xee; LENGTH], AccessFlags::LOCAL_WRITE).unwrap();
        let from = file(&bytes);
        // The system counts in 63 bits.
        let wanted = model(range, LENGTH as u128).filter(|_| i64::try_from(offset).is_ok());
        let mut expected = vec![0xee; LENGTH];
        match (region.read_file_at(range, &from, offset), wanted) {
            (Ok(count), Some((start, end))) => {
                let rest = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or(&[]);
                prop_assert_eq!(count, rest.len().min((end - start) as usize));
                expected[start as usize..][..count].copy_from_slice(&rest[..count]);
            }
            // A range that ends behind the largest file has one byte too many for some systems.
            (Err(error), wanted) => {
                let is_far = offset.saturating_add(LENGTH as u64) > i64::MAX as u64;
                prop_assert!(wanted.is_none() || is_far, "{}", error);
            }
            (Ok(count), None) => prop_assert!(false, "{} bytes", count),
        }
        prop_assert_eq!(region.to_vec(..).unwrap(), &expected[..]);
        // What is written is written where it was told, and the rest of the file stays.
        if offset > 2 * LENGTH as u64 && i64::try_from(offset).is_ok() {
            // A file with a hole of that size is no good to compare.
            return Ok(());
        }
        let to = file(&bytes);
        let mut written = bytes.clone();
        match (region.write_file_at(range, &to, offset), wanted) {
            (Ok(count), Some((start, end))) => {
                prop_assert_eq!(count, (end - start) as usize);
                let offset = offset as usize;
                if count > 0 {
                    written.resize(written.len().max(offset + count), 0);
                    written[offset..offset + count].copy_from_slice(&expected[start as usize..end as usize]);
                }
            }
            (result, wanted) => prop_assert!(result.is_err() && wanted.is_none()),
        }
        prop_assert_eq!(content(&to), written);
        Ok(())
    });
}

#[test]
fn each_slice_of_a_prepared_receive_is_where_it_was_set_last() {
    let steps = proptest::collection::vec((0usize..4, ranges(LENGTH), any::<bool>()), 0..8);
    for_all((ranges(LENGTH), steps), |(first, steps)| {
        let bench = Bench::new();
        let regions = [(); 2].map(|()| bench.pd.register(vec![0; LENGTH], AccessFlags::LOCAL_WRITE).unwrap());
        let Ok(held) = regions[0].hold(first) else { return Ok(()) };
        let mut lengths = [u128::from(held.len()); 2];
        let mut receive = PreparedReceive::<2>::new(7, [held.clone(), held]);
        for (index, range, other_region) in steps {
            let expected = model(range, LENGTH as u128).filter(|_| index < 2);
            let result = match (other_region, regions[1].hold(range)) {
                // A whole slice, of another region.
                (true, Ok(held)) => receive.set_slice(index, held),
                _ => receive.set_range(index, range),
            };
            prop_assert_eq!(result.is_ok(), expected.is_some());
            if let Some((start, end)) = expected {
                lengths[index] = end - start;
            }
            bench.qp.post_prepared_receive(&receive).unwrap();
            let completions = bench.completions();
            prop_assert_eq!(completions.len(), 1);
            prop_assert_eq!(u128::from(completions[0].as_raw().byte_len), lengths.iter().sum::<u128>());
        }
        // The provider looks whether what is posted is registered.
        bench.provider.assert_no_violation();
        Ok(())
    });
}

#[test]
fn a_datagrams_payload_lies_behind_its_header_whatever_the_device_says_of_its_length() {
    for_all((any::<u32>(), numbers(LENGTH)), |(byte_len, offset)| {
        let bench = Bench::new();
        let ud = QueuePair::<Ud>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
        let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
        ud.activate(&local, 1).unwrap();
        let region = bench.pd.register(vec![0; LENGTH], AccessFlags::LOCAL_WRITE).unwrap();
        bench.provider.lie_in_completions(move |completion| completion.byte_len = byte_len);
        ud.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
        let completions = bench.completions();
        let datagram = completions[0].success().unwrap().datagram();
        prop_assert_eq!(datagram.is_some(), byte_len as usize >= Grh::LEN);
        let Some(datagram) = datagram else { return Ok(()) };
        prop_assert_eq!(datagram.payload_len(), byte_len as usize - Grh::LEN);
        let payload = datagram.payload_at(offset);
        let expected = (offset as u128 + 40, offset as u128 + u128::from(byte_len));
        let most = usize::MAX as u128;
        prop_assert_eq!(
            (payload.start as u128, payload.end as u128),
            (expected.0.min(most), expected.1.min(most).max(expected.0.min(most)))
        );
        // One that is longer than its receive is found when it is copied out.
        prop_assert_eq!(region.to_vec(payload).is_ok(), expected.1 <= LENGTH as u128);
        prop_assert_eq!(datagram.grh(&region, offset).is_ok(), expected.0 <= LENGTH as u128);
        Ok(())
    });
}
