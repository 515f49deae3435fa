//! Handles can be dropped in any order: nothing is left in the device, and no freed memory is touched.

mod harness;

use std::any::Any;
use std::process::Command;

use verbs::*;

use harness::resources::resources;
use harness::*;

/// A handle of each kind, with what a program would leave behind: receives that are posted, a queue that is armed.
fn handles() -> Vec<Option<Box<dyn Any>>> {
    let list = devices().unwrap();
    let context = list.find(Some(&device_name())).unwrap().open().unwrap();
    let pd = context.create_protection_domain().unwrap();
    let region = pd.register(vec![0u8; 64], RW).unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 8).channel(&channel).build().unwrap();
    cq.arm(Notify::Any).unwrap();
    let srq = pd.create_shared_receive_queue(2).unwrap();
    srq.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_recv_wr(2).build().unwrap();
    let on_srq = QueuePair::<Rc>::builder(&pd, &cq, &cq).shared_receive_queue(&srq).build().unwrap();
    on_srq.init(&on_srq.local_endpoint(1, &GidFilter::default()).unwrap(), &options()).unwrap();
    on_srq.move_to_error().unwrap();
    qp.init(&qp.local_endpoint(1, &GidFilter::default()).unwrap(), &options()).unwrap();
    qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    // In ERROR the receive completes, and its event is never read.
    qp.move_to_error().unwrap();
    let ud = QueuePair::<Ud>::builder(&pd, &cq, &cq).build().unwrap();
    let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
    let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
    let attachment = ud.attach_multicast("239.1.2.3".parse().unwrap(), 0).unwrap();
    // In groups where a place of its own would multiply the orders.
    vec![
        Some(Box::new(context) as Box<dyn Any>),
        Some(Box::new(pd)),
        Some(Box::new((region, attachment))),
        Some(Box::new(channel)),
        Some(Box::new(cq)),
        Some(Box::new((qp, on_srq, ud))),
        Some(Box::new((srq, ah))),
        Some(Box::new(list)),
    ]
}

/// The order number `index` of `count` things: the digits of `index` in the factorial number system.
fn permutation(mut index: usize, count: usize) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..count).collect();
    (0..count)
        .map(|place| {
            let below: usize = (1..count - place).product();
            let chosen = index / below;
            index %= below;
            rest.remove(chosen)
        })
        .collect()
}

/// Tries every n-th order only; n has no factor in common with the number of orders.
const STRIDE: &str = "RDMA_TEST_STRIDE";

#[test]
fn handles_dropped_in_any_order_leave_nothing_in_the_device() {
    let stride = std::env::var(STRIDE).map_or(31, |stride| stride.parse().unwrap());
    let all = handles();
    let count = all.len();
    assert!(resources().len() >= 5, "{:?}", resources());
    drop(all);
    let orders = (1..=count).product();
    for index in (0..orders).step_by(stride) {
        let mut handles = handles();
        for place in permutation(index, count) {
            handles[place] = None;
        }
    }
    assert_eq!(resources(), Vec::<String>::new());
}

#[test]
fn handles_dropped_in_any_order_touch_no_freed_memory() {
    let report = std::env::temp_dir().join(format!("valgrind-{}", std::process::id()));
    let output = Command::new("valgrind")
        // What the kernel writes through an ioctl is unknown to valgrind, so undefined values are not looked for.
        .args([
            "--error-exitcode=99",
            "--undef-value-errors=no",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ])
        .arg(format!("--log-file={}", report.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "handles_dropped_in_any_order_leave_nothing_in_the_device"])
        .env(STRIDE, "797")
        .output()
        .unwrap();
    let report = std::fs::read_to_string(report).unwrap();
    assert!(output.status.success(), "{}\n{report}", String::from_utf8_lossy(&output.stdout));
    assert!(report.contains("ERROR SUMMARY: 0 errors"), "{report}");
}

#[test]
fn each_order_is_tried_once() {
    let mut all: Vec<_> = (0..24).map(|index| permutation(index, 4)).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 24);
    assert!(all.iter().all(|order| (0..4).all(|place| order.contains(&place))));
}
