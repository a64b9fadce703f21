//! The option of a disk of several partitions.

use clap::Args;
use std::path::PathBuf;

/// Which partitions a disk has.
#[derive(Args, Debug)]
pub(super) struct DefinitionArgs {
    /// Make the image of a disk with the partitions that the files DIR/*.conf define, as those of
    /// systemd-repart do (repart.d(5)); CopyFiles= copies from SOURCE. --size is that of the disk
    #[arg(
        long,
        value_name = "DIR",
        group = "typed",
        conflicts_with_all = [
            "disk", "esp", "verity", "verity_tree", "root_hash_file", "like", "share", "format",
            "label", "uuid", "free", "drop",
        ]
    )]
    definitions: Option<PathBuf>,
}

impl DefinitionArgs {
    pub(super) fn directory(&self) -> Option<&PathBuf> {
        self.definitions.as_ref()
    }
}
