//! `seekless build --layers`: an image for each layer of a container image.

use crate::say::say;
use clap::{Args, ValueEnum};
use seekless_compose::per_layer::LayerWritten;
use seekless_report::table::grouped;
use seekless_source::oci::Whiteouts;
use seekless_units::format_size;
use std::path::Path;

/// Whether each layer gets an image of its own.
#[derive(Args, Debug)]
pub(super) struct LayerArgs {
    /// Write an image for each layer of SOURCE, a container image, into the directory IMG, for
    /// overlayfs to lay over one another; and layers.json, a list of them
    #[arg(
        long,
        conflicts_with_all = [
            "output_format", "size", "free", "like", "share", "freed", "disk", "definitions",
            "verity", "verity_tree", "root_hash_file", "include", "one_file_system", "partition",
            "offset", "manifest", "device_table", "makedevs", "hard_dereference", "file_contexts",
        ]
    )]
    layers: bool,
    /// With --layers, keep the images of an earlier run, as layers.json in the directory lists them,
    /// that this run would write again, and replace the other ones
    #[arg(long, requires = "layers")]
    reuse: bool,
    /// Form of whiteouts in the images of --layers [default: overlay], or in that of SOURCE, the
    /// archive of one layer [default: keep]
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "definitions")]
    whiteouts: Option<WhiteoutsArg>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum WhiteoutsArg {
    /// As overlayfs: character devices 0:0, and trusted.overlay.opaque
    Overlay,
    /// As overlayfs with the mount option userxattr: user.overlay.opaque
    OverlayUser,
    /// As the archive: files .wh.NAME. Each archive is read alone
    Keep,
}

impl From<WhiteoutsArg> for Whiteouts {
    fn from(form: WhiteoutsArg) -> Self {
        match form {
            WhiteoutsArg::Overlay => Self::Overlay,
            WhiteoutsArg::OverlayUser => Self::OverlayUser,
            WhiteoutsArg::Keep => Self::Keep,
        }
    }
}

impl LayerArgs {
    pub(super) fn is_wanted(&self) -> bool {
        self.layers
    }

    /// Whether images of an earlier run are used again.
    pub(super) fn reuses(&self) -> bool {
        self.reuse
    }

    /// The form of whiteouts in the images of layers.
    pub(super) fn whiteouts(&self) -> Whiteouts {
        self.whiteouts.map_or(Whiteouts::Overlay, Whiteouts::from)
    }

    /// The form of whiteouts in the image of one layer's archive, if there is one.
    pub(super) fn of_archive(&self) -> Option<Whiteouts> {
        self.whiteouts.map(Whiteouts::from)
    }
}

/// Prints a line for each image, and the order in which overlayfs takes them.
pub(super) fn tell(directory: &Path, written: &[LayerWritten]) {
    let directory = directory.display();
    let word = if written.len() == 1 { "layer" } else { "layers" };
    say!("{directory}: {} {word}", written.len());
    for one in written {
        let (size, files) = (format_size(one.len), grouped(one.files));
        let reused = if one.is_reused { ", reused" } else { "" };
        say!("  {}  {size:>8}, {}, {files} files{reused}", one.file, one.format);
    }
    let order: Vec<&str> = written.iter().rev().map(|one| one.file.as_str()).collect();
    if order.len() > 1 {
        say!("lowerdir: {} (the mount points of these images, in this order)", order.join(":"));
    }
}
