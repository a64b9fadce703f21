//! The options of images of single layers.

use clap::{Args, ValueEnum};
use seekless_source::oci::Whiteouts;

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
    /// With --layers: how an image marks what its layer hides of those below
    #[arg(long, value_enum, value_name = "FORM", default_value_t, requires = "layers")]
    whiteouts: WhiteoutsArg,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default)]
enum WhiteoutsArg {
    /// As overlayfs: character devices 0:0, and trusted.overlay.opaque
    #[default]
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

    pub(super) fn whiteouts(&self) -> Whiteouts {
        self.whiteouts.into()
    }
}
