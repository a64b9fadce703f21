//! Transactions written to journals of volumes that mke2fs made, read by debugfs,
//! e2fsck, the kernel and ourselves.

mod cached;
mod crash;
#[path = "../damage/images.rs"]
mod images;
#[path = "../repair/judge.rs"]
mod judge;
mod kernel;
mod refused;
mod sequence;
mod volume;
