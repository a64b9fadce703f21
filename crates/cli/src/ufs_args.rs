//! Options of UFS images that are built.

use crate::args::count;
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use seekless_ffs::{BuildOptions, CheckHashes, MakeOptions, Optimization, Version};
use seekless_units::{ByteLen, parse_size};

/// What is said of a UFS image.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Options for UFS images (as in newfs)")]
pub(crate) struct UfsArgs {
    /// Fragment size in bytes: at least 512, and from one eighth of a block to a
    /// full block [default: one eighth of a block]
    #[arg(long, short = 'f', value_parser = parse_size)]
    pub(crate) fragment_size: Option<ByteLen>,
    /// What the allocator optimizes for
    #[arg(long, value_enum)]
    optimize: Option<Spare>,
    /// Maximum number of blocks of a file in one cylinder group
    #[arg(long, value_name = "BLOCKS", value_parser = count::<u32>)]
    maxbpg: Option<u32>,
    /// Expected average file size, used to place directories
    #[arg(long, value_parser = parse_size)]
    avgfilesize: Option<ByteLen>,
    /// Expected average number of files per directory
    #[arg(long, value_name = "FILES", value_parser = count::<u32>)]
    avgfpdir: Option<u32>,
    /// Enable soft updates
    #[arg(long)]
    soft_updates: bool,
    /// Which structures of UFS2 have check hashes: tools from before FreeBSD 13 change
    /// superblocks and inodes without renewing theirs
    #[arg(long, value_enum, value_name = "WHICH")]
    check_hashes: Option<Hashes>,
    /// Write a big-endian image, as used on SPARC and PowerPC
    #[arg(long)]
    big_endian: bool,
    /// Drop extended attributes and ACLs that UFS cannot store
    #[arg(long)]
    drop_xattrs: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Spare {
    Time,
    Space,
}

/// Which structures have check hashes.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hashes {
    /// Superblock, groups and inodes (FreeBSD 13 and later; default)
    All,
    /// Groups only (FreeBSD 12)
    Groups,
    /// None (before FreeBSD 12, NetBSD)
    None,
}

impl Hashes {
    /// Sets the check hashes of a new volume; UFS1 has none.
    pub(crate) fn apply(which: Option<Self>, make: &mut MakeOptions) -> Result<(), Failure> {
        let Some(which) = which else { return Ok(()) };
        if make.version == Version::Ufs1 && which != Self::None {
            return Err(Failure::usage("--check-hashes: UFS1 has no check hashes"));
        }
        make.check_hashes = match which {
            Self::All => CheckHashes::All,
            Self::Groups => CheckHashes::Groups,
            Self::None => CheckHashes::None,
        };
        Ok(())
    }
}

impl UfsArgs {
    /// Sets the options that were given.
    pub(crate) fn apply(&self, options: &mut BuildOptions) -> Result<(), Failure> {
        let small = |len: ByteLen| {
            u32::try_from(len.get()).map_err(|_| Failure::usage(format!("{len} is too large")))
        };
        let make = &mut options.make;
        if let Some(size) = self.fragment_size {
            make.fragment_size = small(size)?;
        }
        if let Some(size) = self.avgfilesize {
            make.avgfilesize = small(size)?;
        }
        match self.optimize {
            Some(Spare::Space) => make.optimization = Optimization::Space,
            Some(Spare::Time) => make.optimization = Optimization::Time,
            None => {}
        }
        make.maxbpg = self.maxbpg.or(make.maxbpg);
        make.avgfpdir = self.avgfpdir.unwrap_or(make.avgfpdir);
        make.soft_updates |= self.soft_updates;
        make.big_endian |= self.big_endian;
        Hashes::apply(self.check_hashes, make)?;
        options.drop_xattrs = self.drop_xattrs;
        Ok(())
    }
}
