//! Images that are damaged, repaired, and judged by e2fsck where it is there.

mod external;
mod interrupted;
pub(crate) mod judge;
pub(crate) mod keeps;
mod protection;
mod quotas;
mod replay;
mod storm;

use crate::damage::images;
use crate::holes;
use judge::bytes_of;
use seekless_device::MemoryDevice;
use seekless_ext::{preen, repair};
use seekless_fs::check::Outcome;
use std::sync::Arc;

/// Images without anything that waits in a journal.
const SOUND: [&str; 5] = ["ext2", "ext4", "inline", "features", "bigalloc"];

#[test]
fn nothing_is_written_to_a_sound_image() {
    for name in SOUND {
        let sound = images::named(name);
        for run in [preen, repair] {
            let device = Arc::new(MemoryDevice::new(holes::copy(&sound)));
            let repaired = run(device.clone()).expect(name);
            assert_eq!(repaired.outcome, Outcome::Clean, "{name}: {repaired:#?}");
            assert!(bytes_of(device.as_ref()) == sound, "{name}: something was written");
        }
    }
}

/// Features for which e2fsck refuses a volume are refused by name, before anything is written.
#[test]
fn what_is_not_written_is_refused_by_name() {
    for (at, bits, feature) in [(101, 8, "replica"), (100, 0x80, "snapshot")] {
        let mut bytes = images::named("ext4");
        bytes[1024 + at] |= bits;
        // Not unmounted.
        bytes[1024 + 58] &= !1;
        let sum = !crc32c::crc32c(&bytes[1024..2044]);
        bytes[2044..2048].copy_from_slice(&sum.to_le_bytes());
        let damaged = bytes.clone();
        let device = Arc::new(MemoryDevice::new(bytes));
        let why = repair(device.clone()).expect_err(feature).to_string();
        assert!(why.contains(feature), "{feature}: {why}");
        assert!(bytes_of(device.as_ref()) == damaged, "{feature}: something was written");
    }
}
