//! UFS: new volumes, volumes in use, damage, and rules of FreeBSD.
//!
//! They are one program: each test program would compile the generic code of the engine again.

#![allow(missing_docs)]

mod damage;
#[path = "../../../fs/tests/shared/exercise.rs"]
mod exercise;
mod grow;
#[path = "../../../fs/tests/shared/list.rs"]
mod list;
mod live;
mod make;
#[path = "../../../live/tests/many/mod.rs"]
mod many;
#[path = "../../../fs/tests/shared/property.rs"]
mod property;
#[path = "../../../live/tests/replay/mod.rs"]
mod replay;
mod rules;
#[path = "../../../fs/tests/shared/slice.rs"]
mod slice;
mod snapshot;
mod words;
