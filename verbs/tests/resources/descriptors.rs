//! The descriptors that a program waits for: how many there are, and what happens where there can be no more.

use std::fs;
use std::os::fd::AsFd;

use verbs::*;

use crate::null_provider::NullProvider;
use crate::one_at_a_time;
use crate::readiness::is_readable;

fn open() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_descriptor_is_made_for_who_asks_and_is_closed_with_its_owner() {
    let _alone = one_at_a_time();
    // What the process opens once.
    drop(NullProvider::new().open());
    let before = open();
    let provider = NullProvider::new();
    let context = provider.open();
    let channels = [(); 4].map(|()| context.create_completion_channel().unwrap());
    let owned = open();
    // The provider's own.
    assert_eq!(owned, before + 5);
    for _ in 0..3 {
        context.as_fd();
        channels[..3].iter().for_each(|channel| _ = channel.as_fd());
        assert_eq!(open(), owned + 4);
    }
    let duplicate = channels[0].as_fd().try_clone_to_owned().unwrap();
    let kept = channels[0].clone();
    drop(channels);
    assert_eq!(open(), before + 5);
    drop(kept);
    assert_eq!(open(), before + 3);
    assert!(!is_readable(&duplicate));
    drop((duplicate, context));
    assert_eq!(open(), before);
}

/// As long as it lives, no descriptor can be made.
struct NoMore(libc::rlimit);

impl NoMore {
    fn new() -> Self {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the structures outlive the calls.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut before), 0);
            let none = libc::rlimit { rlim_cur: 0, rlim_max: before.rlim_max };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &none), 0);
        }
        Self(before)
    }
}

impl Drop for NoMore {
    fn drop(&mut self) {
        // SAFETY: the structure outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &self.0) }, 0);
    }
}

#[test]
fn where_no_descriptor_can_be_made_whoever_waits_is_woken_and_told() {
    let _alone = one_at_a_time();
    let provider = NullProvider::new();
    let context = provider.open();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 8).channel(&channel).build().unwrap();
    let no_more = NoMore::new();
    let (of_channel, of_context) = (channel.as_fd(), context.as_fd());
    drop(no_more);
    for fd in [of_channel, of_context] {
        let mut poll = libc::pollfd { fd: std::os::fd::AsRawFd::as_raw_fd(&fd), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one structure and outlives the call.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 1);
    }
    for error in [cq.take_event().unwrap_err(), context.try_async_event().unwrap_err()] {
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{error}");
        assert!(error.to_string().contains("see `ulimit -n`, and ask for it once more"), "{error}");
    }
    // What needs no descriptor goes on.
    let time = Some(std::time::Duration::from_millis(2));
    assert!(cq.wait(&mut [WorkCompletion::default(); 1], time).unwrap().is_empty());
    // Asked once more.
    assert!(!is_readable(&channel) && !is_readable(&context));
    assert!(!cq.take_event().unwrap());
    assert_eq!(context.try_async_event().unwrap(), None);
}
