//! Properties that hold whatever a program, a peer, a file or a device says: `proptest` makes it up, each time anew.
//!
//! `PROPTEST_CASES` says how many cases each property is tried with; the usual number takes
//! seconds.

#[path = "../null_provider/mod.rs"]
mod null_provider;

mod batches;
mod modify;
mod places;
mod ranges;
mod slots;
mod text;
mod values;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use verbs::*;

use null_provider::NullProvider;

/// Tries a property with values of a strategy. (As a function and not by `proptest!`, so that the code is formatted.)
fn for_all<S: Strategy>(strategy: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    // Failures are not kept in files: the message has the smallest case that was found.
    let config = Config { failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&strategy, property).unwrap_or_else(|error| panic!("{error}"));
}

/// A provider, and a connected queue pair on it.
struct Bench {
    // Declared before the provider, which looks for what is left behind.
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    provider: NullProvider,
}

impl Bench {
    fn new() -> Self {
        let provider = NullProvider::new();
        let context = provider.open();
        let pd = context.create_protection_domain().unwrap();
        let cq = context.create_completion_queue(256).unwrap();
        let builder = QueuePair::builder(&pd, &cq, &cq).max_send_wr(256).max_recv_wr(256);
        let qp = builder.max_send_sge(4).max_recv_sge(4).max_inline_data(64).build().unwrap();
        let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
        qp.connect(&local, &local.endpoint, &ConnectOptions::default()).unwrap();
        Self { qp, cq, pd, provider }
    }

    /// The completions that wait in the queue.
    fn completions(&self) -> Vec<WorkCompletion> {
        let mut room = vec![WorkCompletion::default(); 256];
        self.cq.poll(&mut room).unwrap().to_vec()
    }
}
