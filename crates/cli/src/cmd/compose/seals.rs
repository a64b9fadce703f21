//! Support for files sealed by fs-verity.

use super::{BuildArgs, Family};
use crate::failure::Failure;
use seekless_ext::{BuildOptions, Common};
use seekless_fs::inode_flag;
use seekless_fs::source::Source;

impl BuildArgs {
    /// Adds the feature `verity` if the source has files sealed by fs-verity, the format is ext4,
    /// and neither `--features` nor `--compat` excludes the feature.
    pub(super) fn with_seals(
        &self,
        source: &dyn Source,
        options: &BuildOptions,
    ) -> Result<BuildOptions, Failure> {
        let mut options = options.clone();
        let nodes = source.tree().nodes();
        let is_sealed = nodes.iter().any(|node| node.flags & inode_flag::VERITY != 0);
        let list = self.features.as_deref().unwrap_or_default();
        let is_excluded = list.split([',', ' ']).any(|name| matches!(name, "^verity" | "none"));
        if is_sealed && self.format == Family::Ext4 && !is_excluded {
            let with = options.features.apply("verity")?;
            let common = Common::of(&self.compat)?;
            if common.unknown(with).is_empty() {
                options.features = with;
            }
        }
        Ok(options)
    }
}
