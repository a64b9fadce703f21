//! `seekless quota report`: usage and limits, as `repquota` prints them.

use super::{FileArgs, KindArgs};
use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use crate::show;
use clap::Args;
use seekless_fs::Timestamp;
use seekless_fs::quota::{Balance, OwnerQuota};
use seekless_images::quota::{NamedQuotas, read};
use seekless_units::{ByteLen, format_size};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Print usage and limits of users, groups and projects, as repquota does
#[derive(Args, Debug)]
#[command(after_help = "\
Usage is printed as the quota files have it; `seekless quota check` compares it with the files.
Owners with usage or limits are listed, in order of their numbers, with their names in the image's
own /etc/passwd, /etc/group and /etc/projid. A limit of 0 is none. The two flags are for space and
inodes: `+` stands for usage above a limit (on UFS: at or above the soft limit). `until` is the end
of the grace period, in UTC.

Examples:
  seekless quota report disk.ufs
  seekless quota report -g -n disk.ufs
  seekless quota report --user-file /admin/quota.user disk.ufs
  seekless quota report --json disk.ufs | jq '.quotas[].owners[] | select(.space.over)'")]
pub(super) struct ReportArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    #[command(flatten)]
    kinds: KindArgs,
    /// Print numbers instead of names
    #[arg(short = 'n', long)]
    numeric: bool,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

pub(super) fn run(args: &ReportArgs, global: &Global) -> Result<ExitCode, Failure> {
    let selection = args.files.selection(args.kinds.kinds());
    let (place, options) = (args.place.place(), args.open.options());
    let books = read(&args.image, &place, &selection, !args.numeric, options)?;
    if global.json {
        let quotas: Vec<Value> = books.iter().map(in_json).collect();
        say!("{}", json!({ "image": args.image.to_string_lossy(), "quotas": quotas }));
        return Ok(ExitCode::SUCCESS);
    }
    for (n, found) in books.iter().enumerate() {
        if n > 0 {
            say!("");
        }
        let (kind, grace) = (found.book.kind.name(), found.book.grace);
        let (space, inodes) = (period(grace.space), period(grace.inodes));
        let image = args.image.display();
        say!("{image}: quotas of {kind}s; grace periods: space {space}, inodes {inodes}");
        table(found).into_iter().for_each(|line| say!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The name of an owner, or its number.
fn label(found: &NamedQuotas, id: u32) -> String {
    found.names.name(id).map_or_else(|| id.to_string(), show::name)
}

const HEADINGS: [&str; 10] =
    ["", "", "space", "soft", "hard", "until", "inodes", "soft", "hard", "until"];

/// Lines in columns.
fn table(found: &NamedQuotas) -> Vec<String> {
    let mut rows = vec![HEADINGS.map(String::from)];
    rows[0][0] = found.book.kind.name().into();
    rows.extend(found.book.quotas.iter().map(|quota| row(found, quota)));
    let widths: [usize; 10] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let line = |row: &[String; 10]| {
        let mut text = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            text += &format!("  {cell:>width$}");
        }
        text.trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

fn row(found: &NamedQuotas, quota: &OwnerQuota) -> [String; 10] {
    let size = |bytes: u64| format_size(ByteLen::new(bytes));
    let flag = |one: Balance| if one.over { '+' } else { '-' };
    let until = |one: Balance| match one.expires {
        0 => "-".to_string(),
        secs => show::time(Timestamp { secs, nanos: 0 }),
    };
    let (space, inodes) = (quota.space, quota.inodes);
    [
        label(found, quota.id),
        format!("{}{}", flag(space), flag(inodes)),
        size(space.used),
        size(space.soft),
        size(space.hard),
        until(space),
        inodes.used.to_string(),
        inodes.soft.to_string(),
        inodes.hard.to_string(),
        until(inodes),
    ]
}

/// A time such as `7d`, `36h` or `90s`, as `seekless quota grace` takes it.
fn period(seconds: u64) -> String {
    for (unit, name) in [(86_400, "d"), (3600, "h"), (60, "m")] {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            return format!("{}{name}", seconds / unit);
        }
    }
    format!("{seconds}s")
}

fn in_json(found: &NamedQuotas) -> Value {
    let balance = |one: Balance| {
        let expires = Some(one.expires).filter(|&secs| secs != 0);
        json!({
            "used": one.used,
            "soft": one.soft,
            "hard": one.hard,
            "over": one.over,
            "expires": expires,
        })
    };
    let owner = |quota: &OwnerQuota| {
        json!({
            "id": quota.id,
            "name": found.names.name(quota.id).map(String::from_utf8_lossy),
            "space": balance(quota.space),
            "inodes": balance(quota.inodes),
        })
    };
    let (book, grace) = (&found.book, found.book.grace);
    json!({
        "kind": book.kind.name(),
        "grace": { "space": grace.space, "inodes": grace.inodes },
        "owners": book.quotas.iter().map(owner).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_in_their_largest_unit() {
        assert_eq!([604_800, 3600, 5400, 61, 0].map(period), ["7d", "1h", "90m", "61s", "0s"]);
    }
}
