//! The placement policies of a campaign.

use crate::failure::Failure;
use clap::Args;
use seekless_formats::{Argument, KnownFormat, formats_with};
use std::fmt;

/// Names of placement policies, as the options of a mount have them; a format's own
/// where there is none.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct PolicyArgs {
    /// Placement of directories, as `mount -o dirs=`
    #[arg(long, value_name = "NAME")]
    pub dirs: Option<String>,
    /// Placement of other inodes, as `mount -o inodes=`
    #[arg(long, value_name = "NAME")]
    pub inodes: Option<String>,
    /// Placement of blocks, as `mount -o blocks=` (for example, ext2-next=8)
    #[arg(long, value_name = "NAME")]
    pub blocks: Option<String>,
    /// Placement of clusters on FAT, as `mount -o clusters=`
    #[arg(long, value_name = "NAME")]
    pub clusters: Option<String>,
    /// Tell the device of blocks that are freed, as `mount -o discard`: their sectors hold
    /// other bytes then, or the old ones
    #[arg(long)]
    pub discard: bool,
}

impl PolicyArgs {
    fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("dirs", &self.dirs),
            ("inodes", &self.inodes),
            ("blocks", &self.blocks),
            ("clusters", &self.clusters),
        ];
        all.into_iter().filter_map(|(what, name)| Some((what, name.as_deref()?)))
    }

    /// The policies as arguments for mounts of a format, which has the name `format` here.
    pub(super) fn arguments(
        &self,
        known: &KnownFormat,
        format: &str,
    ) -> Result<Vec<Argument>, Failure> {
        let mut named = self.named();
        if let Some((what, _)) = named.find(|(what, _)| known.mount_parameter(what).is_none()) {
            let families = formats_with(what).join(" and ");
            return Err(Failure::usage(format!("{format}: --{what} is for {families} only")));
        }
        Ok(self.named().map(|(what, name)| Argument::new(what, Some(name))).collect())
    }

    /// The policies as command-line options.
    pub(super) fn as_options(&self) -> String {
        let named = self.named().map(|(what, name)| format!(" --{what} {name}"));
        named.chain(self.discard.then(|| " --discard".into())).collect()
    }
}

/// A suffix to the name of a format.
impl fmt::Display for PolicyArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named().try_for_each(|(what, name)| write!(f, ", {what}={name}"))?;
        if self.discard { f.write_str(", discard") } else { Ok(()) }
    }
}
