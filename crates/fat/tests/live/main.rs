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
use shapes::{SHAPES, fsck, image};

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
