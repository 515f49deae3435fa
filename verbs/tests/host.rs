//! What holds on a machine with or without an RDMA device.

use std::fs;

use verbs::*;

#[test]
fn a_kernel_without_rdma_is_an_error_and_one_without_devices_an_empty_list() {
    let in_kernel = fs::read_dir("/sys/class/infiniband").map(|entries| entries.count());
    match (in_kernel, devices()) {
        // The kernel has no RDMA subsystem.
        (Err(_), Err(error)) => {
            assert!(matches!(error, Error::NoKernelSupport { errno: libc::ENOSYS }), "{error:?}");
            let text = error.to_string();
            assert!(text.starts_with("no RDMA device: this kernel has no RDMA support"), "{text}");
            assert!(text.contains("load the modules ib_uverbs and rdma_rxe"), "{text}");
        }
        (Ok(0), Ok(list)) => {
            assert!(list.is_empty() && list.get(0).is_none());
            let text = list.find(None).unwrap_err().to_string();
            assert!(text.contains("rdma link add rxe0 type rxe netdev NETDEV"), "{text}");
        }
        (Ok(count), Ok(list)) => assert!(list.len() <= count),
        (kernel, list) => panic!("the kernel says {kernel:?}, libibverbs {list:?}"),
    }
}
