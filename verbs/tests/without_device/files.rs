//! Regions that are filled from files and written to files.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::PathBuf;

use verbs::*;

use crate::Bench;

/// A file of the test's own, gone when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("verbs-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_comes_into_a_region_and_goes_out_of_it_where_it_was_told() {
    let bench = Bench::new();
    let path = Scratch::new("there-and-back");
    fs::write(&path.0, b"0123456789").unwrap();
    let mut region = bench.pd.register(Mapping::new(64).unwrap(), AccessFlags::LOCAL_WRITE).unwrap();
    region.fill(b'.');
    let file = OpenOptions::new().read(true).write(true).open(&path.0).unwrap();
    assert_eq!(region.read_file_at(8..12, &file, 3).unwrap(), 4, "as many as there is room for");
    assert_eq!(region.to_vec(7..13).unwrap(), b".3456.");
    assert_eq!(region.read_file_at(60.., &file, 8).unwrap(), 2, "as many as there are");
    assert_eq!(region.to_vec(60..).unwrap(), b"89..");
    assert_eq!(region.read_file_at(.., &file, 10).unwrap(), 0, "the end of the file");
    assert_eq!(region.read_file_at(64.., &file, 0).unwrap(), 0, "no room");
    assert_eq!(region.write_file_at(8..12, &file, 9).unwrap(), 4);
    assert_eq!(fs::read(&path.0).unwrap(), b"0123456783456");
    bench.provider.assert_no_violation();
}

#[test]
fn memory_that_is_only_readable_can_be_written_to_a_file() {
    let bench = Bench::new();
    let path = Scratch::new("constant");
    let region = bench.pd.register(&b"a constant"[..], AccessFlags::empty()).unwrap();
    assert_eq!(region.write_file_at(2.., File::create(&path.0).unwrap(), 0).unwrap(), 8);
    assert_eq!(fs::read(&path.0).unwrap(), b"constant");
}

#[test]
fn what_does_not_lie_in_region_or_file_is_refused_and_the_systems_errors_are_told() {
    let bench = Bench::new();
    let path = Scratch::new("refused");
    let file = File::create(&path.0).unwrap();
    let mut region = bench.pd.register(vec![7; 16], AccessFlags::LOCAL_WRITE).unwrap();
    let error = region.read_file_at(8..17, &file, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "the range 8..17 does not lie in the 16 bytes of the memory region");
    assert_eq!(region.write_file_at(17.., &file, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(region.write_file_at(.., &file, u64::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(region.read_file_at(.., &file, 0).unwrap_err().raw_os_error(), Some(libc::EBADF), "write-only");
    assert_eq!(region.to_vec(..).unwrap(), [7; 16]);
    assert_eq!(file.metadata().unwrap().len(), 0);
}
