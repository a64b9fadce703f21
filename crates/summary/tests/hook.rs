//! The panic hook of a program that reads a summary. It is the process's: a test of its own.

use seekless_summary::{Summary, SummaryError};
use std::fs::File;
use std::panic::{catch_unwind, set_hook};
use std::sync::atomic::{AtomicUsize, Ordering};

static REPORTED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn only_panics_of_decoders_are_not_reported() {
    set_hook(Box::new(|_| {
        REPORTED.fetch_add(1, Ordering::SeqCst);
    }));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/summaries/undecodable.parquet");
    for reported in 0..3 {
        let read = Summary::read(File::open(path).unwrap());
        assert!(matches!(read, Err(SummaryError::Corrupt("its data cannot be decoded"))));
        assert_eq!(REPORTED.load(Ordering::SeqCst), reported);
        assert!(catch_unwind(|| panic!("of the program")).is_err());
        assert_eq!(REPORTED.load(Ordering::SeqCst), reported + 1);
    }
}
