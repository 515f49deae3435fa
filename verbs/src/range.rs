//! Ranges of bytes, checked.

use std::ops::{Bound, Range, RangeBounds};

use crate::error::{Error, Result};

/// The bytes that `range` takes of the `length` bytes of `object`.
#[inline]
pub(crate) fn resolve(range: impl RangeBounds<usize>, length: usize, object: &'static str) -> Result<Range<usize>> {
    // `None`: beyond what can be counted, and so beyond the end, even of an object of `usize::MAX` bytes.
    let start = match range.start_bound() {
        Bound::Included(start) => Some(*start),
        Bound::Excluded(start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.checked_add(1),
        Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => Some(length),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= length => Ok(start..end),
        _ => {
            let (start, end) = (start.unwrap_or(usize::MAX), end.unwrap_or(usize::MAX));
            Err(Error::OutOfRange { object, start, end, length })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_taken_whole_or_not_at_all() {
        let resolve = |range: (Bound<usize>, Bound<usize>)| resolve(range, 10, "region").ok();
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(resolve((Unbounded, Unbounded)), Some(0..10));
        assert_eq!(resolve((Included(3), Excluded(10))), Some(3..10));
        assert_eq!(resolve((Included(10), Unbounded)), Some(10..10));
        assert_eq!(resolve((Excluded(2), Included(9))), Some(3..10));
        assert_eq!(resolve((Included(3), Included(10))), None);
        assert_eq!(resolve((Included(11), Unbounded)), None);
        assert_eq!(resolve((Included(5), Excluded(4))), None);
        assert_eq!(resolve((Unbounded, Included(usize::MAX))), None);
        assert_eq!(resolve((Excluded(usize::MAX), Unbounded)), None);
    }

    #[test]
    fn the_longest_object_ends_where_it_ends() {
        let resolve = |range: (Bound<usize>, Bound<usize>)| resolve(range, usize::MAX, "memory region").ok();
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(resolve((Unbounded, Unbounded)), Some(0..usize::MAX));
        assert_eq!(resolve((Unbounded, Included(usize::MAX - 1))), Some(0..usize::MAX));
        assert_eq!(resolve((Unbounded, Included(usize::MAX))), None);
        assert_eq!(resolve((Excluded(usize::MAX), Unbounded)), None);
    }
}
