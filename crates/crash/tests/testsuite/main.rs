//! The search for states after crashes, on UFS; the order of writes of other implementations.
//!
//! They are one program: each test program would compile the generic code of the formats again.

#![allow(missing_docs)]

mod background;
mod campaign;
mod ext;
mod faults;
#[path = "../../../fs/tests/shared/holes.rs"]
mod holes;
mod journaled;
mod log;
mod order;
#[path = "../../../fs/tests/shared/slice.rs"]
mod slice;
mod snapshot_removal;
mod snapshots;
mod ufs;
