//! `seekless quota`: quotas of images that are not in use.

mod change;
mod check;
mod report;

use crate::args::Global;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use seekless_fs::quota::{OwnerKind, QuotaSelection};
use std::process::ExitCode;

/// Report, set or check the quotas of an image
#[derive(Args, Debug)]
#[command(after_help = "\
Quotas limit the space and the inodes of users, groups and (on ext) projects. Volumes of ext2/3/4
keep them with the feature quota, UFS volumes in the files quota.user and quota.group of FreeBSD.

Examples:
  seekless quota report disk.ufs
  seekless quota set disk.ufs --user alice --space-soft 1G --space-hard 2G
  seekless quota grace disk.ufs --user --space 7d --inodes 12h
  seekless quota check disk.ufs
  seekless quota check -y disk.ufs")]
pub(crate) struct QuotaCommand {
    #[command(subcommand)]
    action: QuotaAction,
}

#[derive(Subcommand, Debug)]
enum QuotaAction {
    Report(report::ReportArgs),
    Set(change::SetArgs),
    Grace(change::GraceArgs),
    Check(check::QuotaCheckArgs),
}

pub(crate) fn run(command: &QuotaCommand, global: &Global) -> Result<ExitCode, Failure> {
    match &command.action {
        QuotaAction::Report(args) => report::run(args, global),
        QuotaAction::Set(args) => change::set(args, global),
        QuotaAction::Grace(args) => change::grace(args, global),
        QuotaAction::Check(args) => Ok(check::run(args, global)),
    }
}

/// The owners whose quotas are meant.
#[derive(Args, Debug, Clone, Copy)]
struct KindArgs {
    /// Quotas of users
    #[arg(short = 'u', long)]
    user: bool,
    /// Quotas of groups
    #[arg(short = 'g', long)]
    group: bool,
    /// Quotas of projects (ext)
    #[arg(short = 'P', long)]
    project: bool,
}

impl KindArgs {
    fn kinds(self) -> Vec<OwnerKind> {
        let given = [self.user, self.group, self.project];
        OwnerKind::ALL.into_iter().zip(given).filter(|(_, given)| *given).map(|it| it.0).collect()
    }
}

/// The quota files of UFS.
#[derive(Args, Debug, Clone)]
struct FileArgs {
    /// UFS: path of the users' quota file in the volume [default: /quota.user]
    #[arg(long, value_name = "PATH")]
    user_file: Option<String>,
    /// UFS: path of the groups' quota file in the volume [default: /quota.group]
    #[arg(long, value_name = "PATH")]
    group_file: Option<String>,
}

impl FileArgs {
    fn selection(&self, kinds: Vec<OwnerKind>) -> QuotaSelection {
        QuotaSelection {
            kinds,
            user_file: self.user_file.clone(),
            group_file: self.group_file.clone(),
        }
    }
}
