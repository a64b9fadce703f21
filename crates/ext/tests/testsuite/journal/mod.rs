//! Transactions written to journals of volumes that mke2fs made, read by debugfs,
//! e2fsck, the kernel and ourselves.

mod cached;
mod crash;
mod kernel;
mod refused;
mod sequence;
mod volume;
