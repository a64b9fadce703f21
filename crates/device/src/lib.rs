//! Block devices, which contain images.
//!
//! A [`BlockDevice`] is addressed in sectors ([`Lba`](seekless_units::Lba)) and may be shared
//! between threads; every call is positional. Kinds: a file or real device ([`FileDevice`]), memory
//! ([`MemoryDevice`]; [`SparseDevice`] if little of a large one is used), a part of another
//! ([`Window`]), one whose beginning is written last ([`HeadLast`]), one of which only some parts are
//! written ([`Masked`]), one of which only some ranges are known ([`PartialDevice`]), one that records
//! which sectors are read ([`ReadRecorder`]), one whose writes wait in a queue ([`WriteQueue`]), one
//! of which there is a [`Snapshot`] ([`SnapshotOrigin`]) and a copy-on-write layer over another device
//! ([`Overlay`]), which shows an unreplayed journal without touching the image.
//!
//! A device in a file of the host offers the file for [`Reflink`]s, so that contents need not be
//! copied.

mod block_device;
mod clock;
mod file;
mod head_last;
mod masked;
mod memory;
mod overlay;
mod partial;
mod read_recorder;
mod reflink;
mod snapshot;
mod sparse;
mod window;
mod write_queue;
mod writes;

pub use block_device::{BlockDevice, DeviceError, Durable, Ticket};
pub use clock::{Clock, RealClock, VirtualClock};
pub use file::FileDevice;
pub use head_last::HeadLast;
pub use masked::Masked;
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use partial::{KnownRun, PartialDevice};
pub use read_recorder::ReadRecorder;
pub use reflink::{CloneTarget, HostRange, NotCloned, Reflink};
pub use snapshot::{Snapshot, SnapshotOrigin};
pub use sparse::SparseDevice;
pub use window::Window;
pub use write_queue::{QueuePlace, WriteQueue};
pub use writes::Writes;
