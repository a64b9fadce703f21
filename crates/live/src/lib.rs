//! A file system in use: the operations, once, on top of a format's encoding.
//!
//! Each change is given to the cache with the changes that must be on the disk before it (the rules
//! of soft updates); the update discipline decides when it is written. Space is freed only in
//! actions, done once the last number or name that leads to it is gone from the disk.
//!
//! [`Live`] is made of parts. `directories`, `volume` and `core` know only those below them:
//!
//! - `namespace`, `links_last`: names made and removed, in the order of FFS and in that of e2fsck,
//!   which the type `OrderedLinks::Order` of a format chooses (`link_order`);
//! - `live`: operations begin and end, and files without names go;
//! - `directories`: entries found, written and taken out, and the way up to the root;
//! - `volume`: inodes in memory and contents, without names;
//! - `core`: the cache, the nodes and the space about to become free, on which a format's code
//!   works as well.
//!
//! Numbers that come from the disk are checked by the format before they get here, and the lints
//! below keep panics out of the code that handles them.
//!
//! # Example
//!
//! ```
//! use seekless_live::Limits;
//! use seekless_units::Ino;
//!
//! // A volume of FFS with blocks of 32 KiB and fragments of 4 KiB.
//! let limits = Limits {
//!     root: Ino::new(2),
//!     inodes: 1000,
//!     block: 32768,
//!     unit: 4096,
//!     name_max: 255,
//!     link_max: 32767,
//!     target_max: 1024,
//!     dir_max: 1 << 31,
//!     dir_unit: 512,
//!     moves_dirs: true,
//! };
//! assert_eq!(limits.units(10_000), 3);
//! ```
//!
//! # Files
//!
//! - The interface of a format: `format.rs` (`Format`), `linked.rs` (`Linked`: a format with
//!   inodes), `link_order.rs` (`OrderedLinks`: the order of their links and names), `naming.rs`
//!   (`Named`: how its files get their names), `features.rs` (features that it may lack), `codec.rs`
//!   (directory entries), `limits.rs` (constants of a volume), `core.rs`. A format makes changes
//!   and returns those that others may have to wait for; it knows nothing of trees of directories,
//!   renaming or `fsync`.
//! - Operations: `calls.rs` (all of `Operate`), `pieces.rs` (one file; several transactions where
//!   there is a journal), `removal.rs` (deferred actions; files without names), `durable.rs`
//!   (`fsync`), `write_back.rs` (delayed contents get their places;
//!   `docs/design/delayed-allocation.md`), `recovery.rs` (corrections of a volume that is recovered
//!   while it is in use), `in_use.rs` (the same after a check of a snapshot), `growth.rs` (volumes that become larger),
//!   `tuning.rs` (limits and
//!   counters of the cache).
//! - State: `discards.rs` (freed blocks of which the device is told), `trim.rs` (free blocks of which
//!   it is told), `node.rs` and `nodes.rs` (inodes in memory), `pending.rs` and `pending_changes.rs`
//!   (changes noted for those that wait for them), `unsettled.rs` (contents that may not be on the
//!   disk), `delayed.rs` (contents without a place), `action.rs`, `cut.rs`, `volume/parents.rs`
//!   (directories of looked-up files), `directories/index.rs` and `directories/departures.rs`
//!   (names in memory, and those that are about to go).
//! - Quotas: `quota.rs` (usage and limits of users and groups), `quota_files.rs` (written).
//! - For formats: `table.rs` (inodes in tables), `indirect/` (files mapped by twelve numbers and
//!   three trees, trait `Indirect`), `attributes.rs` (a list of extended attributes changed).
//! - `fault.rs`: rules that tests break.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![deny(clippy::as_conversions)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::as_conversions
    )
)]

mod action;
mod attributes;
mod calls;
mod codec;
mod core;
mod cut;
mod delayed;
mod directories;
mod discards;
mod durable;
mod fault;
mod features;
mod format;
mod growth;
mod in_use;
pub mod indirect;
mod limits;
mod link_order;
mod linked;
mod links_last;
mod live;
mod namespace;
mod naming;
mod node;
mod nodes;
mod pending;
mod pending_changes;
mod pieces;
#[cfg(test)]
#[path = "../../fs/tests/shared/property.rs"]
mod property;
mod quota;
mod quota_files;
mod recovery;
mod removal;
mod table;
mod trim;
pub mod tuning;
mod unsettled;
mod volume;
mod write_back;

pub use self::core::{Core, PendingSpace, Wall};
pub use action::Action;
pub use attributes::change_list;
pub use codec::{Codec, Compacted, Entry, Room};
pub use cut::{Cut, Runs};
pub use delayed::{BlockState, Delayed};
pub use fault::Fault;
pub use features::{Absent, DelayedAllocation, InlineData, OrphanList, Progress, Recovery};
pub use format::{DataArea, Format, ListingKey, NamePlace};
pub use growth::{grow, plan_growth};
pub use in_use::{correct_in_use, end_check_in_use};
pub use limits::Limits;
pub use link_order::{CountFirst, CountLast, LinkOrder, OrderedLinks};
pub use linked::{Contents, Linked};
pub use live::Live;
pub use naming::{InodeNames, Named, Names};
pub use node::{Node, Restrictions, gone};
pub use nodes::Nodes;
pub use pending::Ids;
pub use pending_changes::PendingChanges;
pub use quota::{Allowance, LackingRecords, Quota, QuotaKind, Quotas, USUAL_GRACE, Usage};
pub use table::{Fields, Part, Raw, Table};
