//! Troubles that people have had with verbs, and what a program gets here instead.

mod completions;
mod creation;
mod environment;
mod failures;
mod memory;
mod posting;
mod retries;
mod states;

use verbs::*;

use crate::harness::*;

/// The status of a request that failed.
fn failure(completion: &WorkCompletion) -> WorkCompletionStatus {
    completion.success().unwrap_err().status
}

fn ids(completions: &[WorkCompletion]) -> Vec<u64> {
    completions.iter().map(WorkCompletion::wr_id).collect()
}

fn statuses(completions: &[WorkCompletion]) -> Vec<WorkCompletionStatus> {
    completions.iter().map(WorkCompletion::status).collect()
}

/// Asserts that what fails says so in these words, with this error number.
fn refused(result: Result<()>, errno: i32, words: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(errno), "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

/// One message arrives.
fn works(a: &Side, b: &Side) {
    b.qp.post_receive(&ReceiveRequest::new(901, &[])).unwrap();
    a.qp.post_send(&SendRequest::send(902, &[]).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().wr_id(), 902);
    assert_eq!(b.completion().success().unwrap().wr_id(), 901);
}
