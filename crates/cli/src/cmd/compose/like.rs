//! `seekless build --like` and `--share`: images that share chunks with others.

use super::{BuildArgs, Family};
use crate::args::{FreedBlocks, Global};
use crate::failure::Failure;
use crate::source::{self, Purpose, SourceArgs};
use clap::Args;
use seekless_compose::base::Likeness;
use seekless_compose::formats::OlderImages;
use seekless_compose::freed::Freed;
use seekless_images::Place;
use seekless_source::Steps;
use seekless_units::{ByteLen, parse_size};
use std::path::PathBuf;

/// Older images, and how strictly the new one is like them; whether sources have places of their
/// own.
#[derive(Args, Debug)]
pub(super) struct LikeArgs {
    /// Keep the files of this older image, or of its layout list (see `seekless layout`), where
    /// they lie there: inode numbers (ext, UFS), places in directories and short names (FAT), and
    /// blocks of files with the same path, or the same contents. Size, features, UUID or
    /// volume ID, label and time of creation are those of the older image too, and it grows if need
    /// be. Of several, the first that has a file counts (repeatable)
    #[arg(long, value_name = "IMG", group = "older")]
    like: Vec<PathBuf>,
    /// With --like: partition of the older images: its number, name or UUID, the label of its
    /// file system, or root
    #[arg(long, requires = "older", value_name = "N|LABEL|root")]
    like_partition: Option<String>,
    /// With --like: fail where groups and inode tables (ext, UFS) or clusters and FATs cannot be
    /// those of the older image
    #[arg(long, requires = "older")]
    like_strict: bool,
    /// With --like and --trace: let so many bytes that traces read leave their places, so that they
    /// lie in the order in which they are read. Those move for which the most seeks are saved. With
    /// the rest, inodes that traces read get numbers behind one another (ext)
    #[arg(long, requires_all = ["older", "trace"], value_name = "SIZE", value_parser = parse_size)]
    move_budget: Option<ByteLen>,
    /// Lay each layer behind those below it, where it lies in every image that begins with the same
    /// layers and has the same options, so that these images share its chunks (ext). A container
    /// image has the layers that it was made of; any other SOURCE is one layer
    #[arg(long, conflicts_with_all = ["like", "inodes"])]
    share: bool,
    /// Blocks of files that were replaced or removed: filled with zeros, or kept as they were, so
    /// that their chunks stay equal. They can be read from the image [default: keep with
    /// --share, otherwise zero]
    #[arg(long, value_enum, value_name = "zero|keep")]
    freed: Option<FreedBlocks>,
}

impl LikeArgs {
    /// The older images, open; `None` without any.
    pub(super) fn open(&self, args: &BuildArgs) -> Result<Option<OlderImages>, Failure> {
        if self.like.is_empty() {
            if self.freed.is_some() && !self.share {
                return Err(Failure::usage("--freed is for --like and --share"));
            }
            return Ok(None);
        }
        if matches!(args.format, Family::Ext2 | Family::Ext3) {
            let why = "--like: the features are those of the older image; --features changes them";
            return Err(Failure::usage(why));
        }
        let place = Place { partition: self.like_partition.clone(), offset: None };
        let options = args.open.options();
        Ok(OlderImages::open(args.format.known(), &self.like, &place, options)?)
    }

    /// The sources, step by step if each layer is laid out for itself.
    pub(super) fn open_sources(
        &self,
        args: &BuildArgs,
        tree: &SourceArgs,
        purpose: Purpose,
        global: &Global,
    ) -> Result<Steps, Failure> {
        let (sources, image) = (&args.sources, args.open.options());
        if !self.share {
            let whole = source::open_layers(sources, tree, image, purpose, global)?;
            return Ok(Steps { below: Vec::new(), whole, replaced_links: Vec::new() });
        }
        if args.fat_width().is_some() || args.ufs_version().is_some() {
            return Err(Failure::usage("--share is for ext images"));
        }
        source::open_steps(sources, tree, image, purpose, global)
    }

    /// Whether each source has places of its own.
    pub(super) fn is_share(&self) -> bool {
        self.share
    }

    /// The older images.
    pub(super) fn images(&self) -> &[PathBuf] {
        &self.like
    }

    /// How far the image is like the older one.
    pub(super) fn likeness(&self) -> Likeness {
        Likeness {
            is_strict: self.like_strict,
            freed: self.freed.map_or(Freed::Zero, Freed::from),
            move_budget: self.move_budget.unwrap_or_default(),
        }
    }

    /// The blocks of files that an upper source replaces.
    pub(super) fn freed_by_sources(&self) -> Freed {
        self.freed.map_or(Freed::Keep, Freed::from)
    }
}
