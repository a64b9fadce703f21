//! FAT: volumes in use, crashes, and damage.
//!
//! They are one program: each test program would compile the generic code of the engine again.

#![allow(missing_docs)]

mod crash;
mod damage;
#[path = "../../../fs/tests/shared/exercise.rs"]
mod exercise;
mod live;
#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;
#[path = "../../../fs/tests/shared/slice.rs"]
mod slice;
