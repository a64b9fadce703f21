//! The search for states after crashes, on UFS; the order of writes of other implementations.
//!
//! One program, since each compiles the formats anew.

#![allow(missing_docs)]

mod campaign;
mod faults;
mod log;
mod order;
mod ufs;
