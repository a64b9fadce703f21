//! `seekless quota set` and `seekless quota grace`: limits and grace periods.

use super::{FileArgs, KindArgs};
use crate::args::{Global, PlaceArgs, count};
use crate::failure::Failure;
use crate::written::Written;
use clap::Args;
use seekless_fs::quota::{LimitChange, OwnerKind, QuotaChange};
use seekless_images::quota::{Owner, change};
use seekless_units::{ByteLen, parse_size};
use std::path::PathBuf;
use std::process::ExitCode;

/// Set limits of a user, a group or a project, as setquota and edquota do
#[derive(Args, Debug)]
#[command(after_help = "\
The image must not be in use, and must be in order. Limits that are not given stay; 0 removes one.
After the grace period (`seekless quota grace`) an exceeded soft limit counts as a hard one. On UFS
a hard limit is one more than the most: with 100, 99 inodes are possible.

Limits of space are kept in units of 512 bytes on UFS and of 1 KiB on ext, and rounded up. On UFS a
missing quota file is made, as `seekless quota check -y` makes it, and usage is counted again.

Examples:
  seekless quota set disk.ufs --user alice --space-soft 1G --space-hard 2G
  seekless quota set disk.ufs --group 100 --inodes-soft 9000 --inodes-hard 10000
  seekless quota set disk.ufs --user alice --space-soft 0 --space-hard 0")]
pub(super) struct SetArgs {
    /// Image file (raw) or block device
    image: PathBuf,
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct OwnerArgs {
    /// User: a number, or a name in the image's /etc/passwd
    #[arg(short = 'u', long, value_name = "NAME|ID")]
    user: Option<String>,
    /// Group: a number, or a name in the image's /etc/group
    #[arg(short = 'g', long, value_name = "NAME|ID")]
    group: Option<String>,
    /// Project (ext): a number, or a name in the image's /etc/projid
    #[arg(short = 'P', long, value_name = "NAME|ID")]
    project: Option<String>,
}

impl OwnerArgs {
    /// The owner; one of the options is given.
    fn owner(&self) -> Option<(OwnerKind, Owner)> {
        let given = [&self.user, &self.group, &self.project];
        let mut given = OwnerKind::ALL.into_iter().zip(given);
        given.find_map(|(kind, text)| Some((kind, Owner::parse(text.as_deref()?))))
    }
}

#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
struct LimitArgs {
    /// Soft limit of space
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    space_soft: Option<ByteLen>,
    /// Hard limit of space
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    space_hard: Option<ByteLen>,
    /// Soft limit of inodes
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    inodes_soft: Option<u64>,
    /// Hard limit of inodes
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    inodes_hard: Option<u64>,
}

/// Set how long soft limits may be exceeded (the grace periods), as edquota -t does
#[derive(Args, Debug)]
#[command(after_help = "\
A grace period is that of all users, groups or projects, and applies to owners that exceed a soft
limit from then on; periods that have begun go on. The default is 7 days. TIME is a number with s,
m, h, d or w; without a letter it is in seconds.

Examples:
  seekless quota grace disk.ufs --user --space 7d --inodes 12h
  seekless quota grace disk.ufs -u -g --space 2w")]
pub(super) struct GraceArgs {
    /// Image file (raw) or block device
    image: PathBuf,
    #[command(flatten)]
    kinds: KindArgs,
    /// Grace period of soft limits of space
    #[arg(long, value_name = "TIME", value_parser = period, required_unless_present = "inodes")]
    space: Option<u64>,
    /// Grace period of soft limits of inodes
    #[arg(long, value_name = "TIME", value_parser = period)]
    inodes: Option<u64>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    place: PlaceArgs,
}

/// A positive time in seconds, minutes, hours, days or weeks, in seconds.
fn period(text: &str) -> Result<u64, String> {
    const UNITS: [(char, u64); 5] =
        [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400)];
    let found = UNITS.iter().find_map(|&(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (digits, unit) = found.unwrap_or((text, 1));
    let number = count::<u64>(digits).ok().filter(|&number| number > 0);
    let seconds = number.and_then(|number| number.checked_mul(unit));
    seconds.ok_or_else(|| "a number with s, m, h, d or w, such as 7d".into())
}

pub(super) fn set(args: &SetArgs, global: &Global) -> Result<ExitCode, Failure> {
    let Some((kind, owner)) = args.owner.owner() else {
        return Err(Failure::usage("--user, --group or --project is needed"));
    };
    let bytes = |limit: Option<ByteLen>| limit.map(ByteLen::get);
    let limits = &args.limits;
    let space = LimitChange { soft: bytes(limits.space_soft), hard: bytes(limits.space_hard) };
    let inodes = LimitChange { soft: limits.inodes_soft, hard: limits.inodes_hard };
    let change_of = |id| QuotaChange::Limits { id, space, inodes };
    let (place, selection) = (args.place.place(), args.files.selection(vec![kind]));
    let owner = (kind, Some(&owner));
    let now = seekless_serve::now();
    let id = change(&args.image, &place, &selection, owner, &change_of, now)?;
    if !global.quiet || global.json {
        Written::file(&args.image).with_number(kind.name(), kind.name(), id.into()).tell(global);
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn grace(args: &GraceArgs, global: &Global) -> Result<ExitCode, Failure> {
    let kinds = args.kinds.kinds();
    if kinds.is_empty() {
        return Err(Failure::usage("--user, --group or --project is needed"));
    }
    let change_of = |_| QuotaChange::Grace { space: args.space, inodes: args.inodes };
    let selection = args.files.selection(kinds.clone());
    for kind in kinds {
        let (place, now) = (args.place.place(), seekless_serve::now());
        change(&args.image, &place, &selection, (kind, None), &change_of, now)?;
    }
    if !global.quiet || global.json {
        Written::file(&args.image).tell(global);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_with_and_without_units() {
        for (text, seconds) in [("90", 90), ("1m", 60), ("12h", 43_200), ("2w", 1_209_600)] {
            assert_eq!(period(text), Ok(seconds));
        }
        for text in ["", "d", "0", "-1d", "1.5d", "18446744073709551615d"] {
            assert!(period(text).is_err(), "{text}");
        }
    }
}
