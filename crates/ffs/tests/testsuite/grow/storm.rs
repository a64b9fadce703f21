//! Random growths between random changes by the engine.

use super::{KINDS, change, files, is_sound, longer, numbers};
use crate::property::for_all;
use crate::replay::WALL;
use proptest::collection::vec;
use proptest::strategy::Strategy;
use seekless_ffs::{grow, plan_growth};
use seekless_fs::FsError;
use seekless_units::ByteLen;

/// A step: changes by the engine, then a growth by fragments, blocks or groups.
#[derive(Clone, Copy, Debug)]
struct Step {
    seed: u64,
    files: u64,
    by: u64,
    unit: u8,
}

fn step() -> impl Strategy<Value = Step> {
    (0..u64::MAX, 0..60u64, 1..40u64, 0..4u8).prop_map(|(seed, files, by, unit)| Step {
        seed,
        files,
        by,
        unit,
    })
}

#[test]
fn growths_between_changes() {
    for (n, kind) in KINDS.into_iter().enumerate() {
        for_all((3, 300 + n), vec(step(), 1..=6), |steps| {
            let mut device = kind.made((500 * u64::from(kind.block)).max(4 << 20));
            for step in steps {
                change(&device, step.seed, step.files);
                let before = files(&device);
                let fs = numbers(&device);
                let unit = match step.unit {
                    0 => fs.fsize(),
                    1 => fs.bsize(),
                    2 => fs.fsize() * fs.fpg() / 7,
                    _ => fs.fsize() * fs.fpg(),
                } as u64;
                let len = (fs.size() * fs.fsize()) as u64 + step.by * unit;
                if len > 48 << 20 {
                    continue;
                }
                let larger = longer(&device, len);
                let planned = plan_growth(device.clone(), ByteLen::new(len));
                match grow(larger.clone(), ByteLen::new(len), WALL) {
                    Ok(growth) => assert_eq!(growth, planned.unwrap()),
                    // Fewer fragments than a group has metadata.
                    Err(FsError::NoSpace(_)) => continue,
                    Err(error) => panic!("{error}: {step:?}"),
                }
                is_sound(&larger, true);
                assert!(files(&larger) == before, "{step:?}");
                device = larger;
            }
        });
    }
}
