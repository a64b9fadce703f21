//! The cache: its order of writes, its journal, and its requests.
//!
//! One program, since each compiles the cache anew.

#![allow(missing_docs)]

mod invariants;
mod journal;
mod late;
mod order;
mod requests;
