//! [`HugePageSize`].

use std::ffi::c_int;
use std::{fmt, fs, io};

use crate::error::Error;
use crate::returns::Errno;

/// The size of huge pages. A kernel has some sizes, which `/sys/kernel/mm/hugepages` lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HugePageSize {
    log_bytes: u32,
}

impl HugePageSize {
    /// 2 MiB.
    pub const MIB_2: Self = Self { log_bytes: 21 };
    /// 1 GiB.
    pub const GIB_1: Self = Self { log_bytes: 30 };

    /// Pages of this many bytes. `None`: that is no power of two.
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes.is_power_of_two() { Some(Self { log_bytes: bytes.trailing_zeros() }) } else { None }
    }

    /// How many bytes a page has.
    pub const fn bytes(self) -> usize {
        1 << self.log_bytes
    }

    /// Whole pages for `length` bytes. `None`: there is nothing to map, or it has more bytes than a slice can have.
    pub(crate) fn round_up(self, length: usize) -> Option<usize> {
        let whole = length.checked_next_multiple_of(self.bytes())?;
        (length > 0 && isize::try_from(whole).is_ok()).then_some(whole)
    }

    /// What tells `mmap` of the size.
    pub(crate) fn flags(self) -> c_int {
        libc::MAP_HUGETLB | (self.log_bytes as c_int) << libc::MAP_HUGE_SHIFT
    }

    /// Where the kernel says how many there are.
    fn folder(self) -> String {
        format!("/sys/kernel/mm/hugepages/hugepages-{}kB", self.bytes() >> 10)
    }

    /// The error of a mapping of `length` bytes in these pages.
    #[cold]
    pub(crate) fn mapping_error(self, error: &io::Error, length: usize) -> Error {
        let (errno, folder) = (error.raw_os_error().unwrap_or(libc::ENOMEM), self.folder());
        let pages = length >> self.log_bytes;
        let count = |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok()?.trim().parse::<usize>().ok();
        let remedy = match (errno, count("nr_hugepages"), count("free_hugepages")) {
            (libc::ENOMEM, Some(reserved), Some(free)) => format!(
                "{reserved} pages of {self} are reserved, of which {free} are free, and {pages} are needed: reserve more, as root, with \
                 `echo {} > {folder}/nr_hugepages`, or at boot with `hugepagesz={} hugepages=N`",
                reserved + pages.saturating_sub(free),
                self.short(),
            ),
            _ => format!("this kernel has no pages of {self}; see /sys/kernel/mm/hugepages for those that it has"),
        };
        Errno(errno).with_remedy("mmap", format_args!("{pages} huge pages of {self}"), remedy)
    }

    /// As the kernel's command line has it.
    fn short(self) -> String {
        match self.log_bytes {
            30.. => format!("{}G", self.bytes() >> 30),
            20..30 => format!("{}M", self.bytes() >> 20),
            _ => format!("{}K", self.bytes() >> 10),
        }
    }
}

impl fmt::Display for HugePageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.log_bytes {
            30.. => write!(f, "{} GiB", self.bytes() >> 30),
            20..30 => write!(f, "{} MiB", self.bytes() >> 20),
            _ => write!(f, "{} KiB", self.bytes() >> 10),
        }
    }
}

impl fmt::Debug for HugePageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HugePageSize({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mapping;

    #[test]
    fn lengths_are_rounded_up_to_whole_pages() {
        let (two, one) = (HugePageSize::MIB_2, HugePageSize::GIB_1);
        assert_eq!((two.bytes(), one.bytes()), (2 << 20, 1 << 30));
        assert_eq!(
            (two.round_up(1), two.round_up(2 << 20), two.round_up((2 << 20) + 1)),
            (Some(2 << 20), Some(2 << 20), Some(4 << 20))
        );
        assert_eq!((two.round_up(0), two.round_up(usize::MAX), one.round_up(isize::MAX as usize)), (None, None, None));
        assert_eq!((two.to_string(), one.to_string()), ("2 MiB".to_owned(), "1 GiB".to_owned()));
        assert_eq!(HugePageSize::new(64 << 10).map(|size| size.to_string()).as_deref(), Some("64 KiB"));
        assert_eq!((HugePageSize::new(0), HugePageSize::new(3 << 20)), (None, None));
    }

    #[test]
    fn pages_that_are_not_reserved_or_not_there_are_an_error_with_the_remedy() {
        assert!(matches!(
            Mapping::in_huge_pages(0, HugePageSize::MIB_2),
            Err(Error::InvalidArgument { argument: "length", .. })
        ));
        // Nobody has a page of 256 TiB, nor that many of 2 MiB.
        let unknown = HugePageSize::new(1 << 48).unwrap();
        let error = Mapping::in_huge_pages(1, unknown).unwrap_err();
        assert!(error.to_string().contains("this kernel has no pages of 262144 GiB"), "{error}");
        if fs::exists(HugePageSize::MIB_2.folder()).unwrap() {
            let error = Mapping::in_huge_pages(1 << 45, HugePageSize::MIB_2).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
            assert!(error.to_string().contains("reserve more, as root, with `echo "), "{error}");
        }
    }
}
