//! Lists of which bytes are overwritten, dropped and doubled: they are followed or refused.

#[path = "../../../fs/tests/shared/property.rs"]
mod property;

mod lists;

use property::for_all;
use proptest::collection::vec;
use proptest::prelude::any;
use std::fs;
use std::path::Path;

/// Bytes that have a meaning in lists.
const SPECIAL: &[u8] = b" \n\\/.=*([{)]}|,-0179:#";

/// The seeds of a fuzz target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut paths: Vec<_> =
        fs::read_dir(dir).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() > 3, "{target}");
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
}

/// Runs the seeds, and seeds with changes.
fn run_damaged(target: &str, run: fn(&[u8])) {
    let seeds = seeds(target);
    seeds.iter().for_each(|seed| run(seed));
    let change = (any::<u8>(), any::<u16>(), any::<u16>());
    for_all(1500, (0..seeds.len(), vec(change, 1..5)), |(seed, changes)| {
        let mut text = seeds[seed].clone();
        for (kind, place, other) in changes {
            let at = usize::from(place) % text.len();
            let from = usize::from(other) % text.len();
            let part = text[from..].iter().take(12).copied().collect::<Vec<_>>();
            match kind % 4 {
                0 => text[at] = SPECIAL[usize::from(other) % SPECIAL.len()],
                1 => text[at] = other.to_le_bytes()[0],
                2 => drop(text.splice(at..at, part)),
                _ if text.len() > 1 => drop(text.remove(at)),
                _ => {}
            }
        }
        run(&text);
    });
}

#[test]
fn damaged_contexts() {
    run_damaged("file_contexts", lists::run_file_contexts);
}

#[test]
fn damaged_tables_of_devices() {
    run_damaged("device_table", lists::run_device_table);
}

#[test]
fn damaged_manifests() {
    run_damaged("mtree", lists::run_mtree);
}
