//! The options of e2fsck that `seekless check` has too.

use super::extended::Extended;
use super::progress;
use super::refusal::unsupported;
use crate::args::count;
use crate::failure::Failure;
use clap::{ArgAction, Args};
use seekless_compose::check::Mode;
use seekless_compose::fsck::{Request, name};
use seekless_ext::{CheckOptions, Start};
use seekless_fs::Timestamp;
use seekless_images::Place;
use seekless_units::BlockNo;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Options for ext images, as e2fsck has them.
#[derive(Args, Debug)]
#[command(next_help_heading = "Ext images, as in e2fsck")]
pub(crate) struct E2fsckArgs {
    /// Start with the copy of the superblock in this block; a repair writes it in place of the
    /// superblock
    #[arg(short = 'b', value_name = "SUPERBLOCK", value_parser = count::<u64>)]
    superblock: Option<u64>,
    /// Size of blocks, in bytes, for places of copies of the superblock [default: all sizes are
    /// tried]
    #[arg(short = 'B', value_name = "BLOCKSIZE", value_parser = count::<u32>)]
    block_size: Option<u32>,
    /// Write the progress to a file descriptor, as lines of pass, position, maximum and name; 0:
    /// show a bar; negative: not before SIGUSR1
    #[arg(short = 'C', value_name = "FD", allow_negative_numbers = true)]
    progress: Option<i32>,
    /// Write directories of several blocks again, sorted and without gaps
    #[arg(short = 'D')]
    optimize: bool,
    /// journal_only, unshare_blocks, discard and other options of e2fsck
    #[arg(short = 'E', value_name = "OPTIONS", value_delimiter = ',')]
    extended: Vec<String>,
    /// Check in full even if the volume is marked clean
    #[arg(short = 'f')]
    pub(super) force: bool,
    /// Print more
    #[arg(short = 'v')]
    pub(crate) verbose: bool,
    /// Print the time that the check took
    #[arg(short = 't', action = ArgAction::Count)]
    pub(crate) timed: u8,
    /// Save blocks in a new file before they are overwritten; e2undo puts them back
    #[arg(short = 'z', value_name = "UNDO_FILE")]
    undo: Option<OsString>,
    /// Not supported: search for bad blocks
    #[arg(short = 'c', action = ArgAction::Count, hide = true)]
    bad_blocks: u8,
    /// Not supported: add blocks to the list of bad blocks
    #[arg(short = 'l', value_name = "FILE", hide = true)]
    add_bad_blocks: Option<PathBuf>,
    /// Not supported: set the list of bad blocks
    #[arg(short = 'L', value_name = "FILE", hide = true)]
    set_bad_blocks: Option<PathBuf>,
    /// Device or image file with the journal, for a volume that has it on another device [default: the
    /// device with its UUID, if the volume is a block device]
    #[arg(short = 'j', value_name = "EXTERNAL_JOURNAL")]
    journal: Option<PathBuf>,
    /// Without effect: -c is not supported
    #[arg(short = 'k', hide = true)]
    keep_bad_blocks: bool,
    /// Without effect
    #[arg(short = 'd', hide = true)]
    debug: bool,
    /// Without effect: results do not depend on buffers
    #[arg(short = 'F', hide = true)]
    flush: bool,
    /// Without effect, as in e2fsck
    #[arg(short = 'r', hide = true)]
    ask: bool,
}

impl E2fsckArgs {
    /// Whether there is no option that only ext images have.
    pub(crate) fn is_empty(&self) -> bool {
        self.superblock.is_none()
            && self.block_size.is_none()
            && self.progress.is_none()
            && !self.optimize
            && self.extended.is_empty()
            && self.undo.is_none()
            && self.journal.is_none()
            && self.add_bad_blocks.is_none()
            && self.set_bad_blocks.is_none()
            && self.bad_blocks == 0
    }

    /// Refuses options for work that is not supported.
    fn refuse(&self) -> Result<(), Failure> {
        let refuse = |option, what| Err(unsupported(option, what));
        if self.bad_blocks > 0 {
            return refuse("-c", "searching for bad blocks is not supported");
        }
        if self.add_bad_blocks.is_some() {
            return refuse("-l", "changing the list of bad blocks is not supported");
        }
        if self.set_bad_blocks.is_some() {
            return refuse("-L", "changing the list of bad blocks is not supported");
        }
        Ok(())
    }

    /// The check of a volume at a time; without a time as `seekless check` makes it.
    pub(crate) fn request(
        &self,
        image: &Path,
        place: &Place,
        mode: Mode,
        now: Option<Timestamp>,
    ) -> Result<Request, Failure> {
        self.refuse()?;
        let extended = Extended::of(&self.extended)?;
        if self.optimize && mode == Mode::Check {
            return Err(unsupported("-D", "nothing is written without -p or -y"));
        }
        if self.optimize && extended.is_fixes_only {
            return Err(unsupported("-D", "contradicts -E fixes_only"));
        }
        if extended.discards && mode == Mode::Check {
            return Err(unsupported("-E discard", "nothing is discarded without -p or -y"));
        }
        if extended.discards && self.undo.is_some() {
            return Err(unsupported("-E discard", "an undo file (-z) does not save free blocks"));
        }
        let block = self.superblock.map(BlockNo::new);
        Ok(Request {
            mode,
            options: CheckOptions {
                start: Start { block, block_size: self.block_size },
                optimizes_directories: self.optimize,
                discards_free: extended.discards,
                unshares_blocks: extended.unshares_blocks,
                is_sequential: false,
                watch: progress::watch(self.progress, || name(image, place))?,
                pause: None,
                journal: None,
                is_claimed: false,
            },
            is_forced: self.force,
            is_journal_only: extended.is_journal_only,
            journal: self.journal.clone(),
            undo: self.undo.as_deref().map(|file| undo_file(Path::new(file), image)).transpose()?,
            is_root: false,
            now,
        })
    }
}

/// The undo file: for an empty name one that is named after the image, in the directory that the
/// environment gives.
fn undo_file(file: &Path, image: &Path) -> Result<PathBuf, Failure> {
    if !file.as_os_str().is_empty() {
        return Ok(file.to_path_buf());
    }
    let dir = std::env::var_os("E2FSPROGS_UNDO_DIR").ok_or_else(|| {
        Failure::usage("-z: the name is empty, and E2FSPROGS_UNDO_DIR is not set")
    })?;
    let image = image.file_name().unwrap_or(OsStr::new("image")).to_string_lossy();
    Ok(Path::new(&dir).join(format!("e2fsck-{image}.e2undo")))
}
