//! Options of changes to the whole tree.

use crate::failure::Failure;
use clap::Args;
use seekless_compose::amendments::WantedAmendments;
use seekless_source::{Amendments, ManifestRole, TableSyntax};
use std::path::PathBuf;

/// Changes to the tree, after the sources were laid over one another.
#[derive(Args, Debug)]
#[command(next_help_heading = "Changes to the tree")]
pub(super) struct AmendArgs {
    /// Take owners, modes, flags, times, links and devices from FILE, a manifest of mtree(5); without
    /// SOURCE, the whole tree, with contents from the paths that it lists
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// Leave out files that the manifest does not list
    #[arg(long, requires = "manifest")]
    only_listed: bool,
    /// Make devices, directories and empty files, and set owners and modes, as FILE says, a table of
    /// genext2fs (repeatable)
    #[arg(short = 'D', long, value_name = "FILE")]
    device_table: Vec<PathBuf>,
    /// The same for FILE as Buildroot's makedevs has it (repeatable)
    #[arg(long, value_name = "FILE")]
    makedevs: Vec<PathBuf>,
    /// Store every name of a file with several (hard links) as a file of its own
    #[arg(long)]
    hard_dereference: bool,
    /// Label all files with the SELinux contexts of FILE, a file_contexts of a policy; FILE.homedirs,
    /// FILE.local, FILE.subs and FILE.subs_dist are read too if they exist (ext)
    #[arg(long, value_name = "FILE")]
    file_contexts: Option<PathBuf>,
    /// With --file-contexts, the path at which the image will be mounted [default: /]
    #[arg(long, value_name = "PATH", requires = "file_contexts")]
    mount_point: Option<String>,
}

impl AmendArgs {
    /// The files that are read.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.wanted(true).files().collect()
    }

    fn wanted(&self, has_source: bool) -> WantedAmendments {
        let role = match (has_source, self.only_listed) {
            (false, _) => ManifestRole::Whole,
            (true, true) => ManifestRole::Selection,
            (true, false) => ManifestRole::Attributes,
        };
        let of = |paths: &[PathBuf], syntax| -> Vec<(PathBuf, TableSyntax)> {
            paths.iter().map(|path| (path.clone(), syntax)).collect()
        };
        let tables = of(&self.device_table, TableSyntax::Genext2fs);
        WantedAmendments {
            manifest: self.manifest.clone().map(|path| (path, role)),
            tables: [tables, of(&self.makedevs, TableSyntax::Makedevs)].concat(),
            hard_dereference: self.hard_dereference,
            file_contexts: self.file_contexts.clone(),
            mount_point: self.mount_point.clone(),
        }
    }

    /// Reads the files that describe the changes to a tree of sources, or without one to that of the
    /// manifest. `lost_and_found` tells whether an ext image gets one; `None` for other formats.
    pub(super) fn read(
        &self,
        has_source: bool,
        lost_and_found: Option<bool>,
    ) -> Result<Amendments, Failure> {
        if self.file_contexts.is_some() && lost_and_found.is_none() {
            return Err(Failure::usage("--file-contexts is for ext images"));
        }
        Ok(self.wanted(has_source).read(lost_and_found.unwrap_or_default())?)
    }
}
