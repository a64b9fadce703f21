//! The cache: its order of writes, its journal, and its requests.
//!
//! They are one program: each test program would compile the generic code of the cache again.

#![allow(missing_docs)]

mod invariants;
mod journal;
mod late;
#[path = "../../../fs/tests/shared/list.rs"]
mod list;
mod order;
#[path = "../../../fs/tests/shared/property.rs"]
mod property;
mod requests;
