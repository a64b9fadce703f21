//! `seekless tune`: shows or changes the tunable parameters of a UFS image.

use crate::args::{Global, PlaceArgs, count};
use crate::failure::Failure;
use crate::say::say;
use clap::{ArgAction, Args, ValueEnum};
use seekless_ffs::Optimization;
use seekless_ffs::tune::{Changes, Settings};
use seekless_fs::FsError;
use seekless_images::refuse_others;
use seekless_units::{ByteLen, parse_size};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show or change the tunable parameters of a UFS image, as tunefs does
#[derive(Args, Debug)]
#[command(after_help = "\
The options are those of FreeBSD's tunefs. An image that is mounted or was not
cleanly unmounted is not changed. Only the primary superblock is written unless
-A is given.

Examples:
  seekless tune disk.img -p
  seekless tune disk.img -n enable
  seekless tune disk.img -m 5 -o space -A
  seekless tune bsd.img --partition 1 -n enable
  seekless tune --json disk.img -p")]
pub(crate) struct TuneArgs {
    /// Image file or block device
    image: PathBuf,
    /// Enable or disable soft updates
    #[arg(short = 'n', long, value_enum, value_name = "WHETHER")]
    soft_updates: Option<Switch>,
    /// Enable or disable POSIX.1e access control lists
    #[arg(short = 'a', long, value_enum, value_name = "WHETHER")]
    acls: Option<Switch>,
    /// Maximum number of blocks of a file in one cylinder group
    #[arg(short = 'e', long, value_name = "BLOCKS", value_parser = count::<u32>)]
    maxbpg: Option<u32>,
    /// Expected average file size, used to place directories
    #[arg(short = 'f', long, value_parser = parse_size)]
    avgfilesize: Option<ByteLen>,
    /// Expected average number of files per directory
    #[arg(short = 's', long, value_name = "FILES", value_parser = count::<u32>)]
    avgfpdir: Option<u32>,
    /// Percentage of space kept free
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = count::<u32>)]
    minfree: Option<u32>,
    /// What the allocator optimizes for
    #[arg(short = 'o', long, value_enum)]
    optimize: Option<TunedFor>,
    /// Fragments reserved for metadata in each group (a multiple of a block, at
    /// most half a group)
    #[arg(short = 'k', long, value_name = "FRAGMENTS", value_parser = count::<u64>)]
    metaspace: Option<u64>,
    /// Volume label: up to 31 letters, digits, dashes, underscores
    #[arg(short = 'L', long)]
    label: Option<String>,
    /// Update the backup superblocks too
    #[arg(short = 'A', long)]
    all_copies: bool,
    /// Print the parameters (after any changes)
    #[arg(short = 'p', long, action = ArgAction::SetTrue)]
    print: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    Enable,
    Disable,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum TunedFor {
    Time,
    Space,
}

pub(crate) fn run(args: &TuneArgs, global: &Global) -> Result<ExitCode, Failure> {
    let changes = changes(args)?;
    let only_print = changes == Changes::default() && !args.all_copies;
    if only_print && !args.print {
        return Err(Failure::usage("nothing to do (use -p to print the parameters)"));
    }
    let device = if only_print {
        seekless_images::device(&args.image, &args.place.place())?
    } else {
        seekless_images::device_locked(&args.image, &args.place.place())?
    };
    let only = "tune works on UFS1 and UFS2 images (for ext there is tune2fs)";
    refuse_others(&args.image, device.as_ref(), &[seekless_ffs::FORMAT], only)?;
    let about = |error: FsError| match error {
        FsError::Invalid(what) => Failure::usage(what),
        other => Failure::from(other).about(args.image.display()),
    };
    let settings = if only_print {
        Settings::read(device.as_ref()).map_err(about)?
    } else {
        let (old, new) = changes.apply(device.as_ref(), args.all_copies).map_err(about)?;
        device.flush().map_err(|error| about(error.into()))?;
        if !global.json {
            differences(&old, &new).for_each(|line| say!("{line}"));
            advice(&new).into_iter().for_each(|line| say!("{line}"));
        }
        new
    };
    if global.json {
        say!("{}", json(&settings));
    } else if args.print {
        for (what, option, value) in rows(&settings) {
            say!("{:<58} {value}", format!("{what}: ({option})"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn changes(args: &TuneArgs) -> Result<Changes, Failure> {
    let on = |switch: Option<Switch>| switch.map(|switch| switch == Switch::Enable);
    let small = |len: ByteLen| {
        u32::try_from(len.get()).map_err(|_| Failure::usage(format!("{len} is too large")))
    };
    Ok(Changes {
        soft_updates: on(args.soft_updates),
        acls: on(args.acls),
        maxbpg: args.maxbpg,
        avgfilesize: args.avgfilesize.map(small).transpose()?,
        avgfpdir: args.avgfpdir,
        minfree: args.minfree,
        optimization: args.optimize.map(|spare| match spare {
            TunedFor::Time => Optimization::Time,
            TunedFor::Space => Optimization::Space,
        }),
        metaspace: args.metaspace,
        label: args.label.as_ref().map(|label| label.as_bytes().to_vec()),
    })
}

fn name(optimization: Optimization) -> &'static str {
    match optimization {
        Optimization::Time => "time",
        Optimization::Space => "space",
    }
}

/// Rows of the settings: description, option, value.
fn rows(settings: &Settings) -> [(&'static str, &'static str, String); 14] {
    let on = |on: bool| if on { "enabled" } else { "disabled" }.to_string();
    let s = settings;
    [
        ("POSIX.1e ACLs", "-a", on(s.acls)),
        ("NFSv4 ACLs", "-N", on(s.nfs4_acls)),
        ("MAC multilabel", "-l", on(s.multilabel)),
        ("soft updates", "-n", on(s.soft_updates)),
        ("soft update journaling", "-j", on(s.journaled_soft_updates)),
        ("gjournal", "-J", on(s.gjournal)),
        ("trim", "-t", on(s.trim)),
        ("maximum blocks per file in a cylinder group", "-e", s.maxbpg.to_string()),
        ("average file size", "-f", s.avgfilesize.to_string()),
        ("average number of files in a directory", "-s", s.avgfpdir.to_string()),
        ("minimum percentage of free space", "-m", format!("{}%", s.minfree)),
        ("space to hold for metadata blocks", "-k", s.metaspace.to_string()),
        ("optimization preference", "-o", name(s.optimization).to_string()),
        ("volume label", "-L", String::from_utf8_lossy(&s.label).into_owned()),
    ]
}

fn differences(old: &Settings, new: &Settings) -> impl Iterator<Item = String> {
    let pairs = rows(old).into_iter().zip(rows(new));
    pairs.filter(|(old, new)| old.2 != new.2).map(|((what, _, old), (_, _, new))| {
        format!("{what} changes from {} to {}", quote(&old), quote(&new))
    })
}

fn quote(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}

/// tunefs' recommendation: optimize for time if at least 8% are kept free, for space otherwise.
fn advice(settings: &Settings) -> Option<String> {
    let (fits, bound) = match settings.minfree {
        8.. => (Optimization::Time, ">= 8%"),
        _ => (Optimization::Space, "< 8%"),
    };
    let asked = settings.optimization != fits;
    asked.then(|| format!("should optimize for {} with minfree {bound}", name(fits)))
}

fn json(settings: &Settings) -> serde_json::Value {
    serde_json::json!({
        "soft_updates": settings.soft_updates,
        "journaled_soft_updates": settings.journaled_soft_updates,
        "gjournal": settings.gjournal,
        "acls": settings.acls,
        "nfs4_acls": settings.nfs4_acls,
        "multilabel": settings.multilabel,
        "trim": settings.trim,
        "maxbpg": settings.maxbpg,
        "avgfilesize": settings.avgfilesize,
        "avgfpdir": settings.avgfpdir,
        "minfree": settings.minfree,
        "metaspace": settings.metaspace,
        "optimization": name(settings.optimization),
        "label": String::from_utf8_lossy(&settings.label),
    })
}
