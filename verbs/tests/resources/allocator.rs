//! An allocator that counts what each thread does.
//!
//! # Safety
//!
//! The system's allocator does it all.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATED: Cell<u64> = const { Cell::new(0) };
    static FREED: Cell<u64> = const { Cell::new(0) };
}

struct CountingAllocator;

// SAFETY: as the file says. What counts allocates nothing itself.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + 1);
        // SAFETY: the caller keeps to the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        FREED.set(FREED.get() + 1);
        // SAFETY: the caller keeps to the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// How often this thread has allocated so far.
pub(crate) fn allocated() -> u64 {
    ALLOCATED.get()
}

/// How many more allocations than this thread has freed are there.
pub(crate) fn live() -> i64 {
    ALLOCATED.get() as i64 - FREED.get() as i64
}
