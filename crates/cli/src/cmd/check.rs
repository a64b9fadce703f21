//! `seekless check`: whether an image is in order.

use crate::args::Global;
use crate::failure::{Failure, Kind};
use crate::say::say;
use clap::Args;
use seekless_device::{BlockDevice, FileDevice};
use seekless_fs::check::{Class, Finding, Report};
use seekless_fs::format::Probe;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Something is not in order, and left so: as `fsck(8)`.
const LEFT: u8 = 4;

/// Check whether a UFS image is in order; changes nothing
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless check disk.img
  seekless check --json disk.img | jq '.findings[].code'

Looks at every inode, every name, every bitmap and count of a UFS1 or UFS2
image. Each finding has a code that stays the same between versions, and says
whether a crash may leave such a thing (`expected`: repaired by `fsck -p`
without asking) or only damage does (`unexpected`).

Exit codes: 0 in order, 4 something was found, otherwise as for all commands.
For ext images use e2fsck -fn.")]
pub(crate) struct CheckArgs {
    /// Image file or block device
    image: PathBuf,
    /// Change nothing (as it is: for scripts that give fsck's options)
    #[arg(short = 'n')]
    no: bool,
}

pub(crate) fn run(args: &CheckArgs, global: &Global) -> Result<ExitCode, Failure> {
    let path = &args.image;
    let device = FileDevice::open(path).map_err(|error| Failure::io(path.display(), &error))?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    if (seekless_ext::FORMAT.probe)(device.as_ref()) == Probe::Yes {
        return Err(Failure::new(Kind::Unsupported, "an ext image: check it with e2fsck -fn")
            .about(path.display()));
    }
    let report =
        seekless_ffs::check(device).map_err(|error| Failure::from(error).about(path.display()))?;
    if global.json {
        print_json(args, &report)
    } else {
        print(args, &report)
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(LEFT) })
}

fn class(finding: &Finding) -> &'static str {
    match finding.class {
        Class::Expected => "expected",
        Class::Unexpected => "unexpected",
    }
}

fn print_json(args: &CheckArgs, report: &Report) {
    let finding = |finding: &Finding| -> Value {
        json!({
            "code": finding.code,
            "class": class(finding),
            "what": finding.what,
            "location": {
                "structure": finding.location.structure,
                "group": finding.location.group.map(|group| group.get()),
                "inode": finding.location.ino.map(|ino| ino.get()),
                "block": finding.location.block.map(|block| block.get()),
                "offset": finding.location.offset,
            },
        })
    };
    let value = json!({
        "image": args.image.to_string_lossy(),
        "clean": report.is_clean(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_left_out": report.more,
        "unexpected": report.unexpected,
        "inodes": report.tally.inodes,
        "directories": report.tally.directories,
        "blocks": report.tally.blocks,
    });
    say!("{value}");
}

fn print(args: &CheckArgs, report: &Report) {
    for finding in &report.findings {
        let (class, code) = (class(finding), finding.code);
        say!("{code} ({class}): {} ({})", finding.what, finding.location);
    }
    if report.more > 0 {
        say!("... and {} findings more", report.more);
    }
    let tally = &report.tally;
    let verdict = match (report.is_clean(), report.unexpected) {
        (true, _) => "in order".to_string(),
        (false, 0) => "as a crash may leave it".to_string(),
        (false, n) => format!("damaged: {n} unexpected findings"),
    };
    say!(
        "{}: {verdict}; {} inodes, {} of them directories, {} fragments in files",
        args.image.display(),
        tally.inodes,
        tally.directories,
        tally.blocks
    );
}
