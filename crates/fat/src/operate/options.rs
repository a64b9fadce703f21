//! How an image is opened.

use seekless_live::Wall;

/// How to open an image for changes.
pub struct LiveOptions {
    /// The policy for clusters, by name or by number ([`ClusterPlacement`]); `None` for
    /// `next-fit`.
    ///
    /// [`ClusterPlacement`]: seekless_placement::cluster::ClusterPlacement
    pub clusters: Option<String>,
    /// The seed of the policies' random numbers.
    pub seed: u64,
    /// Minutes by which the times in entries are ahead of UTC.
    pub zone: i32,
    /// Open it even if it is not clean.
    pub force: bool,
    /// The time of day.
    pub wall: Wall,
}
