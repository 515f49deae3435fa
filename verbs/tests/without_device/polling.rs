use verbs::*;

use crate::Bench;

#[test]
fn an_empty_queue_is_not_an_error() {
    let bench = Bench::new();
    assert!(bench.cq.poll(&mut [WorkCompletion::default(); 4]).unwrap().is_empty());
    assert!(bench.cq.poll(&mut []).unwrap().is_empty());
}

#[test]
fn a_poll_takes_what_is_there_and_what_there_is_room_for() {
    let bench = Bench::new();
    for wr_id in 0..5 {
        bench.qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).unwrap();
    }
    let mut room = [WorkCompletion::default(); 3];
    let ids = |completions: &[WorkCompletion]| completions.iter().map(WorkCompletion::wr_id).collect::<Vec<_>>();
    assert_eq!(ids(bench.cq.poll(&mut room).unwrap()), [0, 1, 2]);
    assert_eq!(ids(bench.cq.poll(&mut room).unwrap()), [3, 4]);
    assert!(bench.cq.poll(&mut room).unwrap().is_empty());
}

#[test]
fn a_negative_count_is_an_error_with_its_number() {
    let bench = Bench::new();
    let mut room = [WorkCompletion::default(); 4];
    for count in [-1, -libc::EIO, -2, i32::MIN] {
        bench.provider.poll_returns(count);
        let error = bench.cq.poll(&mut room).unwrap_err();
        assert!(error.to_string().contains("ibv_poll_cq"), "{error}");
        assert_eq!(error.raw_os_error(), count.saturating_neg());
    }
    bench.cq.poll(&mut room).unwrap();
}

#[test]
fn more_completions_than_there_was_room_for_are_an_error() {
    let bench = Bench::new();
    let mut room = [WorkCompletion::default(); 4];
    for count in [5, 1000, i32::MAX] {
        bench.provider.poll_returns(count);
        let error = bench.cq.poll(&mut room).unwrap_err();
        assert_eq!(error.raw_os_error(), libc::EIO);
        assert!(error.to_string().contains(&format!("{count} completions, more than there was room for")), "{error}");
        bench.provider.poll_returns(count);
        assert_eq!(bench.cq.poll(&mut []).unwrap_err().raw_os_error(), libc::EIO);
    }
    bench.provider.poll_returns(4);
    assert_eq!(bench.cq.poll(&mut room).unwrap().len(), 4);
}

#[test]
fn a_status_that_nobody_knows_is_a_failure_with_its_number() {
    let bench = Bench::new();
    for status in [24, 99, 0x7fff_ffff, u32::MAX] {
        bench.provider.complete_with(status, 0);
        bench.qp.post_send(&SendRequest::send(7, &[]).signaled()).unwrap();
        let mut room = [WorkCompletion::default(); 1];
        let completion = &bench.cq.poll(&mut room).unwrap()[0];
        assert_eq!(completion.status(), WorkCompletionStatus::from_raw(status));
        let error = completion.success().unwrap_err();
        assert_eq!((error.wr_id, error.qp_num), (7, bench.qp.qp_num()));
        assert!(format!("{error} {error:?} {completion:?}").contains(&status.to_string()), "{error} {error:?}");
    }
}

#[test]
fn an_opcode_that_nobody_knows_is_kept() {
    let bench = Bench::new();
    for opcode in [50, 127, 0x7fff_ff7f, u32::MAX] {
        bench.provider.complete_with(0, opcode);
        bench.qp.post_send(&SendRequest::send(7, &[]).signaled()).unwrap();
        let mut room = [WorkCompletion::default(); 1];
        let completion = &bench.cq.poll(&mut room).unwrap()[0];
        let success = completion.success().unwrap();
        assert_eq!(success.opcode().as_raw(), opcode);
        // What it did is unknown, and so is what else holds.
        assert_eq!(success.byte_len().is_some(), success.opcode().is_receive());
        assert!(format!("{} {success:?}", success.opcode()).contains(&opcode.to_string()));
    }
}
