//! Images that are damaged, repaired, and judged by e2fsck where it is there.

mod interrupted;
pub(crate) mod judge;
pub(crate) mod keeps;
mod replay;
mod storm;

use crate::damage::images;
use judge::bytes_of;
use seekless_device::MemoryDevice;
use seekless_ext::{preen, repair};
use seekless_fs::check::Outcome;
use std::sync::Arc;

/// Images without anything that waits in a journal, and what of it they have that is
/// not written.
const SOUND: [(&str, bool); 5] =
    [("ext2", true), ("ext4", true), ("inline", true), ("features", false), ("bigalloc", false)];

#[test]
fn nothing_is_written_to_a_sound_image() {
    for (name, _) in SOUND {
        let sound = images::named(name);
        for run in [preen, repair] {
            let device = Arc::new(MemoryDevice::new(sound.clone()));
            let repaired = run(device.clone()).expect(name);
            assert_eq!(repaired.outcome, Outcome::Clean, "{name}: {repaired:#?}");
            assert!(bytes_of(device.as_ref()) == sound, "{name}: something was written");
        }
    }
}

/// Features that a repair does not keep up are refused by name, before anything is
/// written.
#[test]
fn what_is_not_written_is_refused_by_name() {
    for (name, feature) in [("features", "ea_inode"), ("bigalloc", "bigalloc")] {
        let mut bytes = images::named(name);
        // Not unmounted.
        bytes[1024 + 58] &= !1;
        let damaged = bytes.clone();
        let device = Arc::new(MemoryDevice::new(bytes));
        let why = repair(device.clone()).expect_err(name).to_string();
        assert!(why.contains(feature), "{name}: {why}");
        assert!(bytes_of(device.as_ref()) == damaged, "{name}: something was written");
    }
}
