use verbs::*;

use crate::harness::*;

#[test]
fn the_number_of_entries_is_checked_by_the_device_and_named() {
    let context = open();
    let limit = context.device_attributes().unwrap().max_cqe();
    for entries in [0, limit + 1, u32::MAX] {
        let error = context.create_completion_queue(entries).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().ends_with(&format!("{} takes 1 to {limit} entries", device_name())), "{error}");
    }
    for entries in [1, limit / 2, limit] {
        assert!(context.create_completion_queue(entries).unwrap().capacity() >= entries);
    }
}

#[test]
fn a_completion_vector_that_is_not_there_is_named() {
    let context = open();
    for vector in [999, u32::MAX] {
        let error = CompletionQueueBuilder::new(&context, 8).comp_vector(vector).build().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().contains("completion vectors, from 0"), "{error}");
    }
}

#[test]
fn an_empty_queue_is_no_error_and_an_empty_array_takes_nothing() {
    let (a, b) = pair();
    let mut room = [WorkCompletion::default(); 4];
    assert!(a.cq.poll(&mut room).unwrap().is_empty());
    b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    a.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    assert_eq!(b.completion().wr_id(), 1);
    assert!(a.cq.poll(&mut []).unwrap().is_empty());
    assert_eq!(a.completion().success().unwrap().wr_id(), 2);
}

#[test]
fn completions_outlive_their_queue_pair() {
    let (a, b) = pair();
    b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    a.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    assert_eq!(b.completion().wr_id(), 1);
    let Side { qp, cq, .. } = a;
    let number = qp.qp_num();
    drop(qp);
    // A device may keep the completion (rxe) or drop it with its queue pair.
    for completion in cq.poll(&mut [WorkCompletion::default(); 2]).unwrap() {
        assert_eq!((completion.wr_id(), completion.qp_num()), (2, number));
    }
}
