//! FAT in use: seeded operations beside a model, judged by fsck.fat and mtools.

mod hostile;
#[path = "../damage/images.rs"]
mod images;
mod names;
mod placed;
mod replay;
mod shapes;
#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;

use replay::Replay;
use seekless_cache::Discipline;
use shapes::{SHAPES, Shape, fsck, image};

/// Space that is about to become free is waited for; what there is none for changes nothing.
#[test]
fn full_volumes_lose_nothing() {
    let shapes = [
        Shape { how: &["-F", "12", "-s", "1"], kibibytes: 160 },
        Shape { how: &["-F", "12", "-s", "4", "-r", "32"], kibibytes: 240 },
        Shape { how: &["-F", "32", "-s", "1", "-f", "1"], kibibytes: 200 },
    ];
    for (n, shape) in (0..).zip(&shapes) {
        for discipline in Discipline::ALL {
            let Some(device) = image(shape) else { return };
            let mut replay = Replay::new(device, discipline, 50 + n);
            replay.run(900);
            assert!(replay.full > 3, "{discipline} {shape:?}: it was full {} times", replay.full);
            fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
        }
    }
}

#[test]
fn operations_do_what_a_model_does() {
    for (n, shape) in (0..).zip(&SHAPES) {
        for discipline in Discipline::ALL {
            let Some(device) = image(shape) else { return };
            let mut replay = Replay::new(device, discipline, n);
            replay.run(400);
            fsck(&replay.finish(), &format!("{discipline} {shape:?}"));
        }
    }
}
