//! Ageing: on a file system that is only a model, and on images, which are then
//! read by the reader, checked, and compared with what the stream believes.

mod damage;
mod image;
mod model;
#[path = "../../../fs/tests/shared/property.rs"]
mod property;

use seekless_lab::age::Settings;

/// A run to 80%.
fn settings(ops: u64, seed: u64) -> Settings {
    Settings { ops, fullness: 0.8, seed, samples: 10 }
}
