//! `seekless info`: shows format, sizes and features of an image.

use crate::args::{Global, OpenArgs, PlaceArgs};
use crate::failure::Failure;
use crate::say::say;
use clap::Args;
use seekless_fs::format::Probe;
use seekless_images::Place;
use seekless_partition::{Partition, Table};
use seekless_report::table::grouped;
use seekless_units::format_size;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the format, sizes and features of an image, or the partitions of a disk
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  seekless info disk.img
  seekless info --json disk.img
  seekless info --partition root cloud.img
  seekless info disk.qcow2
  seekless info /dev/vg0/root

Of a disk image with a partition table the partitions are listed, with the file systems
that can be read in them; --partition shows one of them.")]
pub(crate) struct InfoArgs {
    /// Image file (raw or qcow2) or block device
    image: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &InfoArgs, global: &Global) -> Result<ExitCode, Failure> {
    if !args.place.is_part()
        && let Some(listed) = list_partitions(&args.image, global)?
    {
        return Ok(listed);
    }
    let image = seekless_images::open(&args.image, &args.place.place(), args.open.options())?;
    let shape = image.geometry();
    let uuid = shape.uuid_text();
    let label = String::from_utf8_lossy(&shape.label).into_owned();
    if global.json {
        let value = serde_json::json!({
            "format": shape.format,
            "label": label,
            "uuid": uuid,
            "block_size": shape.block_size,
            "blocks": shape.blocks,
            "free_blocks": shape.free_blocks,
            "groups": shape.groups,
            "blocks_per_group": shape.blocks_per_group,
            "cluster_blocks": shape.cluster_blocks,
            "inodes": shape.inodes,
            "free_inodes": shape.free_inodes,
            "inode_size": shape.inode_size,
            "features": shape.features,
        });
        say!("{value}");
        return Ok(ExitCode::SUCCESS);
    }
    let rows: [(&str, String); 11] = [
        ("format", shape.format.to_string()),
        ("label", label),
        ("uuid", uuid),
        ("block size", shape.block_size.to_string()),
        ("blocks", format!("{} ({} free)", shape.blocks, shape.free_blocks)),
        ("groups", format!("{} of {} blocks", shape.groups, shape.blocks_per_group)),
        ("cluster", format!("{} blocks", shape.cluster_blocks)),
        ("inodes", format!("{} ({} free)", shape.inodes, shape.free_inodes)),
        ("inode size", shape.inode_size.to_string()),
        ("first block", shape.first_block.to_string()),
        ("features", shape.features.join(" ")),
    ];
    for (name, value) in rows {
        say!("{name:<12} {value}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the partitions of a disk; `None` if it has none, or is a file system itself.
fn list_partitions(path: &Path, global: &Global) -> Result<Option<ExitCode>, Failure> {
    let disk = seekless_images::device(path, &Place::default())?;
    if seekless_images::FORMATS.iter().any(|format| (format.probe)(disk.as_ref()) != Probe::No) {
        return Ok(None);
    }
    let table = Table::read(disk.as_ref());
    let Some(table) = table.map_err(|error| Failure::from(error).about(path.display()))? else {
        return Ok(None);
    };
    let held = |partition: &Partition| {
        let image = seekless_images::partition::file_system(&disk, partition)?;
        let shape = image.geometry();
        Some((shape.format, String::from_utf8_lossy(&shape.label).into_owned()))
    };
    if global.json {
        let one = |partition: &Partition| {
            let held = held(partition);
            json!({
                "number": partition.number,
                "start": partition.start.get(),
                "bytes": partition.len.get(),
                "type": partition.kind.to_string(),
                "name": partition.name,
                "uuid": partition.id.map(|id| id.to_string()),
                "format": held.as_ref().map(|(format, _)| format),
                "label": held.as_ref().map(|(_, label)| label),
            })
        };
        let partitions: Vec<Value> = table.partitions.iter().map(one).collect();
        let (scheme, is_backup) = (table.scheme.name(), table.is_backup);
        say!("{}", json!({ "scheme": scheme, "backup": is_backup, "partitions": partitions }));
        return Ok(Some(ExitCode::SUCCESS));
    }
    let copy = if table.is_backup { ", from the copy at the end of the disk" } else { "" };
    say!("partition table: {}{copy}", table.scheme.name());
    say!("{:>3} {:>16} {:>8}  {:<24} {:<16} file system", "", "first byte", "size", "type", "name");
    for partition in &table.partitions {
        let (number, kind) = (partition.number, partition.kind.to_string());
        let (start, len) = (grouped(partition.start.get()), format_size(partition.len));
        let held = held(partition).map(|(format, label)| match label.is_empty() {
            true => format.to_string(),
            false => format!("{format} {label:?}"),
        });
        let (name, held) = (&partition.name, held.unwrap_or_else(|| "-".into()));
        say!("{number:>3} {start:>16} {len:>8}  {kind:<24} {name:<16} {held}");
    }
    Ok(Some(ExitCode::SUCCESS))
}
