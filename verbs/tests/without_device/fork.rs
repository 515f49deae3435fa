use verbs::*;

use crate::Bench;

#[test]
fn a_process_is_prepared_for_a_fork() {
    let bench = Bench::new();
    assert_eq!(fork_status(), ForkStatus::DISABLED);
    prepare_for_fork().unwrap();
    assert_eq!(fork_status(), ForkStatus::ENABLED);
    assert_eq!(fork_status().to_string(), "enabled");
    bench.provider.fail("ibv_fork_init", libc::EINVAL);
    let error = prepare_for_fork().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().ends_with("call it before memory is registered"), "{error}");
}

#[test]
fn where_the_kernel_copies_registered_memory_it_is_never_too_late() {
    let bench = Bench::new();
    bench.provider.copy_at_fork();
    bench.provider.fail("ibv_fork_init", libc::EINVAL);
    prepare_for_fork().unwrap();
    assert_eq!((fork_status(), fork_status().to_string()), (ForkStatus::UNNEEDED, "unneeded".to_owned()));
    bench.provider.fail("ibv_fork_init", libc::ENOMEM);
    assert_eq!(prepare_for_fork().unwrap_err().raw_os_error(), Some(libc::ENOMEM));
}
