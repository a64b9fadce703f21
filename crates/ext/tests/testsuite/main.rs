//! ext: images read and written, volumes in use, crashes, journals, damage and repair.
//!
//! They are one program: each test program would compile the generic code of the engine again.

#![allow(missing_docs)]

mod crash;
mod damage;
#[path = "../../../fs/tests/shared/exercise.rs"]
mod exercise;
mod faults;
#[path = "../../../fs/tests/shared/holes.rs"]
mod holes;
mod journal;
mod judge;
#[path = "../../../fs/tests/shared/list.rs"]
mod list;
mod live;
#[path = "../../../live/tests/many/mod.rs"]
mod many;
#[path = "../../../fs/tests/shared/property.rs"]
mod property;
mod repair;
#[path = "../../../live/tests/replay/mod.rs"]
mod replay;
#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;
#[path = "../../../fs/tests/shared/slice.rs"]
mod slice;
mod sound;
#[path = "../../../fs/tests/shared/unmount.rs"]
mod unmount;
