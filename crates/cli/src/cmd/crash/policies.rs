//! The placement policies of a campaign.

use clap::Args;
use std::fmt;

/// Names of placement policies, as the options of a mount have them; a format's own
/// where there is none.
#[derive(Args, Clone, Default, Debug)]
pub(crate) struct Policies {
    /// Placement of directories, as `mount -o dirs=`
    #[arg(long, value_name = "NAME")]
    pub dirs: Option<String>,
    /// Placement of other inodes, as `mount -o inodes=`
    #[arg(long, value_name = "NAME")]
    pub inodes: Option<String>,
    /// Placement of blocks, as `mount -o blocks=` (for example, ext2-next=8)
    #[arg(long, value_name = "NAME")]
    pub blocks: Option<String>,
}

impl Policies {
    fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("dirs", &self.dirs), ("inodes", &self.inodes), ("blocks", &self.blocks)];
        all.into_iter().filter_map(|(what, name)| Some((what, name.as_deref()?)))
    }

    /// The options that give them.
    pub(super) fn as_options(&self) -> String {
        self.named().map(|(what, name)| format!(" --{what} {name}")).collect()
    }
}

/// Behind the name of a format.
impl fmt::Display for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named().try_for_each(|(what, name)| write!(f, ", {what}={name}"))
    }
}
