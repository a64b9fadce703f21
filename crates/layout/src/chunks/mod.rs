//! The chunks that images share. Lazily loaded volumes, caches and updates store a chunk once, under
//! the digest of its bytes.
//!
//! Chunks are counted in three ways: aligned ones of any size, as a lazily loaded volume has them
//! (512 KiB in Brooker et al., "On-demand Container Loading in AWS Lambda", ATC 2023),
//! content-defined ones as casync cuts them, and blocks of 4 KiB, which updates by blocks send.
//! Chunks of zeros are stored nowhere, and not counted.
//!
//! - `digests`: the digests of an image
//! - `cut`: content-defined chunks
//! - `sharing`: how many chunks of an image others have
//! - `kinds`: the structures whose blocks make chunks new
//! - `store`: the bytes of chunks that are compressed one by one

mod buzhash_table;
mod cut;
mod digests;
mod kinds;
mod sharing;
mod store;

pub use cut::CutSizes;
pub use digests::BLOCK;
pub use kinds::{Cause, KindBytes, Kinds};
pub use sharing::{Chunked, Count, Fetched, Sharing, Stored, Unit, matrix, successive};
pub use store::{Codec, StoreError, touched};
