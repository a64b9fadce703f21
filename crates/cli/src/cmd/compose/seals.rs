//! Support for files sealed by fs-verity.

use super::{BuildArgs, Family};
use crate::failure::Failure;
use seekless_ext::BuildOptions;
use seekless_fs::inode_flag;
use seekless_fs::source::Source;

impl BuildArgs {
    /// Adds the feature `verity` if the source has files sealed by fs-verity, the format is ext4,
    /// and neither `--features` nor `--compat` excludes the feature.
    pub(super) fn with_seals(
        &self,
        source: &dyn Source,
        mut options: BuildOptions,
    ) -> Result<BuildOptions, Failure> {
        let nodes = source.tree().nodes();
        let is_sealed = nodes.iter().any(|node| node.flags & inode_flag::VERITY != 0);
        if is_sealed && self.format == Family::Ext4 {
            options.features = self.ext.with_feature(options.features, "verity")?;
        }
        Ok(options)
    }
}
