use verbs::*;

use crate::Bench;
use crate::null_provider::{BadWr, Refusal};

fn slots(bench: &Bench, count: usize) -> ReceiveSlots {
    ReceiveSlots::new(bench.region.hold(1000..1000 + 64 * count + 63).unwrap(), 64, 500).unwrap()
}

fn completions(bench: &Bench) -> Vec<WorkCompletion> {
    let mut room = [WorkCompletion::default(); 64];
    bench.cq.poll(&mut room).unwrap().to_vec()
}

#[test]
fn slots_go_round_and_lie_side_by_side_in_their_memory() {
    let bench = Bench::new();
    let mut receives = slots(&bench, 8);
    assert_eq!((receives.len(), receives.waiting()), (8, 8));
    for round in 0..3 {
        assert_eq!(receives.refill(&bench.qp).unwrap(), if round == 0 { 8 } else { 6 });
        assert_eq!((receives.refill(&bench.qp).unwrap(), receives.waiting()), (0, 0));
        let completions = completions(&bench);
        assert_eq!(completions.len(), if round == 0 { 8 } else { 6 });
        for (index, completion) in completions.iter().enumerate() {
            let slot = (completion.wr_id() - 500) as usize;
            // The provider says of each receive that it was filled.
            assert_eq!(receives.take(completion), Some(1000 + 64 * slot..1064 + 64 * slot));
            assert_eq!(receives.take(completion), None);
            if round > 0 || index >= 2 {
                receives.release(completion.wr_id()).unwrap();
            }
        }
    }
    bench.provider.assert_no_violation();
}

#[test]
fn only_a_slot_that_was_taken_is_released_and_only_once() {
    let bench = Bench::new();
    let mut receives = slots(&bench, 2);
    for wr_id in [0, 499, 500, 501, 502, u64::MAX] {
        assert!(matches!(receives.release(wr_id), Err(Error::InvalidArgument { .. })), "{wr_id}");
    }
    receives.refill(&bench.qp).unwrap();
    assert!(receives.release(500).is_err());
    receives.take(&completions(&bench)[0]).unwrap();
    receives.release(500).unwrap();
    assert!(receives.release(500).is_err());
    assert_eq!(receives.waiting(), 1);
}

#[test]
fn slots_that_the_queue_did_not_take_wait_for_the_next_refill() {
    let bench = Bench::build(|builder| builder.max_recv_wr(5));
    let mut receives = slots(&bench, 8);
    let error = receives.refill(&bench.qp).unwrap_err();
    assert_eq!((error.kind(), error.accepted(), error.requests()), (PostErrorKind::QueueFull, Some(5), 8));
    assert_eq!(receives.waiting(), 3);
    assert_eq!(completions(&bench).iter().filter_map(|completion| receives.take(completion)).count(), 5);
    assert_eq!(receives.refill(&bench.qp).unwrap(), 3);
    let ids: Vec<u64> = completions(&bench).iter().map(WorkCompletion::wr_id).collect();
    assert_eq!(ids, [505, 506, 507]);
    // If it is not known how many, none is posted twice.
    let mut receives = slots(&bench, 4);
    bench.provider.refuse(Refusal { after: 2, errno: libc::EIO, bad_wr: BadWr::Null });
    assert_eq!(receives.refill(&bench.qp).unwrap_err().accepted(), None);
    assert_eq!(receives.waiting(), 0);
    receives.reset();
    assert_eq!(receives.waiting(), 4);
}

#[test]
fn a_receive_that_failed_gives_its_slot_back_and_no_bytes() {
    let bench = Bench::new();
    let mut receives = slots(&bench, 1);
    bench.provider.complete_with(ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0, 0);
    receives.refill(&bench.qp).unwrap();
    assert_eq!(receives.take(&completions(&bench)[0]), Some(1000..1000));
    // An RDMA WRITE with immediate puts nothing into the slot, though its length is told.
    receives.release(500).unwrap();
    bench.provider.complete_with(0, ffi::ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM.0);
    receives.refill(&bench.qp).unwrap();
    assert_eq!(receives.take(&completions(&bench)[0]), Some(1000..1000));
}

#[test]
fn slots_have_a_size_that_fits_into_their_memory() {
    let bench = Bench::new();
    for slot_len in [0, 65, usize::MAX] {
        let error = ReceiveSlots::new(bench.region.hold(..64).unwrap(), slot_len, 0).unwrap_err();
        assert!(error.to_string().contains("a slot has 1 to 64 bytes"), "{error}");
    }
    assert!(ReceiveSlots::new(bench.region.hold(..0).unwrap(), 1, 0).is_err());
    assert_eq!(ReceiveSlots::new(bench.region.hold(..64).unwrap(), 64, 0).unwrap().len(), 1);
}
