use verbs::*;

use crate::harness::*;

fn is_unsupported<T>(result: Result<T>, wanted: &str) -> bool {
    matches!(result, Err(Error::Unsupported { verb, errno: libc::EOPNOTSUPP, .. }) if verb == wanted)
}

#[test]
fn a_device_without_thread_domains_and_parent_domains_says_so() {
    let side = Side::new();
    let thread_domain = side.context.create_thread_domain();
    let parent = side.pd.create_parent_domain();
    if let (Ok(thread_domain), Ok(parent)) = (&thread_domain, &parent) {
        // SAFETY: one thread uses the objects.
        let both = unsafe { side.pd.create_parent_domain_in(thread_domain) }.unwrap();
        for pd in [parent, &both] {
            QueuePair::<Rc>::builder(pd, &side.cq, &side.cq).build().unwrap();
        }
        return;
    }
    let message = parent.as_ref().unwrap_err().to_string();
    let reason = "not supported by this device or its provider (Operation not supported (os error 95))";
    assert_eq!(message, format!("ibv_alloc_parent_domain({}): {reason}", device_name()));
    assert!(is_unsupported(thread_domain, "ibv_alloc_td") && is_unsupported(parent, "ibv_alloc_parent_domain"));
}
