//! `seekless info`: what an image is.

use crate::args::{Global, OpenArgs};
use crate::failure::Failure;
use crate::image;
use crate::say::say;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the format, sizes and features of an image
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  seekless info disk.img\n  seekless info --json disk.img")]
pub(crate) struct InfoArgs {
    /// Image file or block device
    image: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
}

pub(crate) fn run(args: &InfoArgs, global: &Global) -> Result<ExitCode, Failure> {
    let image = image::open(&args.image, args.open)?;
    let shape = image.geometry();
    let uuid = crate::uuid::text(&shape.uuid);
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
