//! The placement policies of a campaign.

use crate::failure::Failure;
use clap::Args;
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
}

/// Names of placement policies; `None` for the format's own.
#[derive(Clone, Default, Debug)]
pub(crate) struct Policies {
    pub dirs: Option<String>,
    pub inodes: Option<String>,
    pub blocks: Option<String>,
    pub clusters: Option<String>,
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

    /// The policies of a format without clusters.
    pub(super) fn without_clusters(&self, format: &str) -> Result<Policies, Failure> {
        if self.clusters.is_some() {
            return Err(Failure::usage(format!("{format}: --clusters is for FAT only")));
        }
        let (dirs, inodes, blocks) = (self.dirs.clone(), self.inodes.clone(), self.blocks.clone());
        Ok(Policies { dirs, inodes, blocks, clusters: None })
    }

    /// The policies of a format whose only policy places clusters.
    pub(super) fn only_clusters(&self, format: &str) -> Result<Policies, Failure> {
        match self.named().find(|&(what, _)| what != "clusters") {
            Some((what, _)) => {
                Err(Failure::usage(format!("{format}: --{what} is for UFS and ext only")))
            }
            None => Ok(Policies { clusters: self.clusters.clone(), ..Policies::default() }),
        }
    }

    /// The policies as command-line options.
    pub(super) fn as_options(&self) -> String {
        self.named().map(|(what, name)| format!(" --{what} {name}")).collect()
    }
}

/// A suffix to the name of a format.
impl fmt::Display for PolicyArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named().try_for_each(|(what, name)| write!(f, ", {what}={name}"))
    }
}
