//! FAT: volumes in use, crashes, and damage.
//!
//! One program, since each compiles the engine anew.

#![allow(missing_docs)]

mod crash;
mod damage;
#[path = "../../../fs/tests/shared/exercise.rs"]
mod exercise;
mod live;
#[path = "../../../fs/tests/shared/skip.rs"]
mod skip;
