//! `seekless build --verity`: the hash tree of an image.

use crate::args::Global;
use crate::failure::{Failure, Kind};
use crate::progress;
use crate::written::{Written, is_same};
use clap::Args;
use seekless_device::{DeviceError, Window};
use seekless_fs::FsError;
use seekless_images::output::{NO_INPUTS, Output, is_written_to, replace};
use seekless_images::targets::{OutputFormat, Target};
use seekless_units::{ByteLen, Lba};
use seekless_verity::{HASH_BLOCK, RootHash, Verity, VerityError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Whether there is to be a hash tree, and where.
#[derive(Args, Debug)]
pub(super) struct VerityArgs {
    /// Append a dm-verity hash tree to the image, and print its root hash
    #[arg(long)]
    verity: bool,
    /// Write the dm-verity hash tree to a file of its own
    #[arg(long, value_name = "FILE", conflicts_with = "verity")]
    verity_tree: Option<PathBuf>,
    /// Write the root hash of the tree to a file, too
    #[arg(long, value_name = "FILE")]
    root_hash_file: Option<PathBuf>,
}

/// The files of a hash tree beside the image, not complete yet.
pub(super) struct SealFiles {
    tree: Option<Target>,
    /// `None` also for a device or a pipe.
    root_hash: Option<Output>,
}

/// The hash tree that was written.
pub(super) struct Sealed {
    root: RootHash,
    /// Offset of the tree in its file, in bytes.
    offset: u64,
    tree: Option<PathBuf>,
}

impl VerityArgs {
    /// Whether a tree was requested.
    pub(super) fn is_wanted(&self) -> bool {
        self.verity || self.verity_tree.is_some()
    }

    /// The files that are written beside the image.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &PathBuf> {
        self.verity_tree.iter().chain(&self.root_hash_file)
    }

    /// Refuses invalid combinations of arguments before anything is written. Creates the files of a
    /// separate tree and of the root hash.
    pub(super) fn begin(
        &self,
        image: &Path,
        force: bool,
        inputs: &[PathBuf],
    ) -> Result<SealFiles, Failure> {
        if self.root_hash_file.is_some() && !self.is_wanted() {
            return Err(Failure::usage("--root-hash-file needs --verity or --verity-tree"));
        }
        let others = [&self.verity_tree, &self.root_hash_file];
        let is_shared = match others {
            [Some(tree), Some(root_hash)] => is_same(tree, root_hash),
            _ => false,
        };
        if is_shared || others.into_iter().flatten().any(|path| is_same(path, image)) {
            return Err(Failure::usage("image, hash tree and root hash need files of their own"));
        }
        let raw = Some(OutputFormat::Raw);
        let tree = self.verity_tree.as_ref();
        let tree = tree.map(|path| Target::create(path, force, raw, inputs)).transpose()?;
        let root_hash = self.root_hash_file.as_ref().filter(|path| !is_written_to(path));
        let root_hash = root_hash.map(|path| Output::create(path, force, inputs)).transpose()?;
        Ok(SealFiles { tree, root_hash })
    }

    /// Bytes for the image if image and tree share `all` bytes; `None` if both do not fit.
    pub(super) fn room_for_data(&self, all: ByteLen) -> Option<ByteLen> {
        if self.verity { seekless_verity::data_beside_tree(all) } else { Some(all) }
    }

    /// Writes the tree of an image of `len` bytes, which is complete but not yet renamed to its
    /// final name, and the root hash.
    pub(super) fn seal(
        &self,
        image: &Target,
        len: ByteLen,
        files: SealFiles,
        global: &Global,
    ) -> Result<Option<Sealed>, Failure> {
        if !self.is_wanted() {
            return Ok(None);
        }
        let SealFiles { tree, root_hash } = files;
        let failed = |error| {
            let failure = failed(error);
            // Only the tree is written.
            let written = tree.as_ref().filter(|_| failure.is_no_space());
            failure.about(written.unwrap_or(image).path().display())
        };
        let whole = image.device(len, &progress::shown(global))?;
        let verity = Verity::new(whole.as_ref()).map_err(failed)?;
        let bar = progress::bytes(global, len);
        let progress = |bytes| bar.inc(bytes);
        let (root, offset) = match &tree {
            Some(tree) => {
                let tree = tree.device(verity.tree_len(), &progress::shown(global))?;
                let written = verity.write(whole.as_ref(), tree.as_ref(), ByteLen::ZERO, &progress);
                (written.map_err(failed)?, 0)
            }
            None => {
                let offset = len.get().next_multiple_of(HASH_BLOCK);
                let both = image.device(
                    ByteLen::new(offset + verity.tree_len().get()),
                    &progress::shown(global),
                )?;
                let data = Window::new(both.clone(), Lba::ZERO, len)
                    .map_err(|error: DeviceError| failed(error.into()))?;
                let at = ByteLen::new(offset);
                (verity.write(&data, both.as_ref(), at, &progress).map_err(failed)?, offset)
            }
        };
        bar.finish_and_clear();
        if let Some(tree) = tree {
            tree.finish()?;
        }
        // No newline, as with `veritysetup --root-hash-file`.
        match (&self.root_hash_file, root_hash) {
            (Some(path), Some(output)) => {
                let written = write!(output.file()?, "{root}");
                written.map_err(|error| Failure::io(path.display(), &error))?;
                output.finish()?;
            }
            (Some(path), None) => replace(path, NO_INPUTS, |out| write!(out, "{root}"))?,
            (None, _) => {}
        }
        Ok(Some(Sealed { root, offset, tree: self.verity_tree.clone() }))
    }
}

impl Sealed {
    /// Adds the parameters that veritysetup needs to the result.
    pub(super) fn tell(&self, written: Written) -> Written {
        let written = written.with_text("root_hash", "root hash", &self.root.to_string());
        match &self.tree {
            Some(tree) => {
                written.with_text("verity_tree", "hash tree", &tree.display().to_string())
            }
            None => written.with_number("hash_offset", "hash offset", self.offset),
        }
    }
}

fn failed(error: VerityError) -> Failure {
    match error {
        VerityError::Device(error) => Failure::from(FsError::from(error)),
        VerityError::Length(_) => Failure::new(Kind::Unsupported, error.to_string()),
    }
}
