//! Troubles that people have had with verbs, and what a program gets here instead.

mod completions;
mod creation;
mod crossings;
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

/// The entry with another key or length: what only `unsafe` code can make.
fn tampered<'a>(slice: LocalSlice<'a>, change: impl FnOnce(&mut ffi::ibv_sge)) -> LocalSlice<'a> {
    let mut sge = *slice.as_raw();
    change(&mut sge);
    // SAFETY: a `LocalSlice` is an `ibv_sge` and nothing more. What it names is not registered, and the device finds that.
    unsafe { std::mem::transmute::<ffi::ibv_sge, LocalSlice<'a>>(sge) }
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
