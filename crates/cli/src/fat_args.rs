//! Options of FAT images.

use crate::args::{count, count as number};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use seekless_fat::{FatWidth, Losses, MakeOptions};
use seekless_source::DroppedXattrs;
use seekless_units::{ByteLen, parse_size};

/// What is said of a FAT image.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Options for FAT images (as in mkfs.fat)")]
pub(crate) struct FatMakeArgs {
    /// Width of the FAT with --format fat: 12, 16 or 32
    #[arg(short = 'F', long, value_name = "BITS", value_parser = count::<u32>)]
    fat_size: Option<u32>,
    /// Sectors per cluster (-s), a power of two up to 128 [default: chosen from the
    /// size]
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>)]
    sectors_per_cluster: Option<u32>,
    /// Sector size in bytes: 512, 1024, 2048 or 4096 [default: 512]
    #[arg(short = 'S', long, value_parser = parse_size)]
    sector_size: Option<ByteLen>,
    /// Number of FATs (-f), 1 to 4 [default: 2]
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>)]
    fats: Option<u32>,
    /// Reserved sectors in front of the FATs, at least [default: 32 on FAT32, else 1]
    #[arg(short = 'R', long, value_name = "COUNT", value_parser = count::<u32>)]
    reserved_sectors: Option<u32>,
    /// Entries of the root directory, at least (FAT12, FAT16) [default: 512, or 112 or
    /// 224 on floppy disks]
    #[arg(short = 'r', long, value_name = "COUNT", value_parser = count::<u32>)]
    root_entries: Option<u32>,
    /// Volume label, as --label
    #[arg(short = 'n', value_name = "LABEL")]
    short_n: Option<String>,
    /// Volume ID (-i), 8 hexadecimal digits [default: derived from time, label and size]
    #[arg(long, value_name = "ID")]
    volume_id: Option<String>,
    /// Do not align the parts of the volume to clusters (-a of mkfs.fat)
    #[arg(long)]
    no_align: bool,
    /// Sector of the copy of the boot sector (FAT32) [default: 6]
    #[arg(long, value_name = "SECTOR", value_parser = count::<u32>)]
    backup_sector: Option<u32>,
    /// Sectors in front of the volume on its disk [default: 0]
    #[arg(long, value_name = "COUNT", value_parser = count::<u32>)]
    hidden_sectors: Option<u32>,
}

impl FatMakeArgs {
    /// The options of a volume. `shorts` are -s, -f and -i, which other formats have too; `width`
    /// is the width that the format determines, if it does.
    pub(crate) fn options(
        &self,
        width: Option<FatWidth>,
        size: ByteLen,
        label: &[u8],
        shorts: [&Option<String>; 3],
    ) -> Result<MakeOptions, Failure> {
        let mut options = MakeOptions::new(None, size);
        self.apply(&mut options, width, label, shorts)?;
        Ok(options)
    }

    /// Applies the options that were given.
    pub(crate) fn apply(
        &self,
        options: &mut MakeOptions,
        width: Option<FatWidth>,
        label: &[u8],
        shorts: [&Option<String>; 3],
    ) -> Result<(), Failure> {
        let [short_s, short_f, _] = shorts;
        let count = |option: &str, text: &Option<String>, long: Option<u32>| match text {
            Some(text) => {
                let bad = || Failure::usage(format!("{option}: '{text}' is not a number"));
                number(text).map(Some).map_err(|_| bad())
            }
            None => Ok(long),
        };
        options.width = self.width(width)?.or(options.width);
        options.cluster = count("-s", short_s, self.sectors_per_cluster)?.or(options.cluster);
        options.fats = count("-f", short_f, self.fats)?.unwrap_or(options.fats);
        if let Some(size) = self.sector_size {
            options.sector_size = u32::try_from(size.get())
                .map_err(|_| Failure::usage(format!("{size} is too large")))?;
        }
        options.reserved = self.reserved_sectors.or(options.reserved);
        options.root_entries = self.root_entries.or(options.root_entries);
        options.align &= !self.no_align;
        options.backup = self.backup_sector.or(options.backup);
        options.hidden = self.hidden_sectors.unwrap_or(options.hidden);
        options.label = match &self.short_n {
            Some(_) if !label.is_empty() => {
                return Err(Failure::usage("-n and --label are the same option for FAT images"));
            }
            Some(label) => label.clone().into_bytes(),
            None => label.to_vec(),
        };
        Ok(())
    }

    fn width(&self, format: Option<FatWidth>) -> Result<Option<FatWidth>, Failure> {
        let asked = match self.fat_size {
            None => return Ok(format),
            Some(12) => FatWidth::Fat12,
            Some(16) => FatWidth::Fat16,
            Some(32) => FatWidth::Fat32,
            Some(bits) => {
                return Err(Failure::usage(format!("-F {bits}: must be 12, 16 or 32")));
            }
        };
        match format {
            Some(format) if format != asked => {
                Err(Failure::usage("-F contradicts --format (use --format fat)"))
            }
            _ => Ok(Some(asked)),
        }
    }

    /// The volume ID, if one was given; `short` is -i.
    pub(crate) fn id(&self, short: Option<&str>) -> Result<Option<u32>, Failure> {
        let Some(text) = short.or(self.volume_id.as_deref()) else { return Ok(None) };
        let id = u32::from_str_radix(text.trim_start_matches("0x"), 16);
        id.map(Some).map_err(|_| {
            Failure::usage(format!("'{text}' is not a volume ID of up to 8 hexadecimal digits"))
        })
    }
}

/// What is lost on the way from a tree to a FAT image.
#[derive(Args, Debug, Clone)]
pub(crate) struct FatBuildArgs {
    /// Leave out parts of the tree: a list separated by commas. For all formats: xattrs
    /// (all extended attributes and access control lists), or names of extended attributes,
    /// such as security.selinux. For FAT also owners, modes (other than 0644 and 0444,
    /// of directories 0755 and 0555), links (each name becomes a file), symlinks, devices
    /// (device nodes, FIFOs and sockets), names (files with names that FAT does not allow)
    /// or all; a tree with parts that FAT cannot store and that are not listed is refused
    #[arg(long, value_parser = parse_dropped, value_delimiter = ',', value_name = "LIST")]
    drop: Vec<Dropped>,
}

/// An item of `--drop`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Dropped {
    Loss(Loss),
    /// The name of an extended attribute.
    Xattr(String),
}

fn parse_dropped(text: &str) -> Result<Dropped, String> {
    match Loss::from_str(text, false) {
        Ok(loss) => Ok(Dropped::Loss(loss)),
        Err(_) if text.contains('.') => Ok(Dropped::Xattr(text.into())),
        Err(_) => Err("not owners, modes, links, symlinks, devices, xattrs, names, all or the \
             name of an extended attribute, such as security.selinux"
            .into()),
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// Owners and groups other than 0
    Owners,
    /// Modes other than 0644 and 0444, of directories 0755 and 0555
    Modes,
    /// Hard links: each name becomes a file
    Links,
    /// Symlinks, which are left out
    Symlinks,
    /// Device nodes, FIFOs and sockets, which are left out
    Devices,
    /// Extended attributes and access control lists
    Xattrs,
    /// Files with names that FAT does not allow, which are left out
    Names,
    /// All of these
    All,
}

impl FatBuildArgs {
    pub(crate) fn losses(&self) -> Losses {
        let has = |loss| [loss, Loss::All].iter().any(|loss| self.has(*loss));
        Losses {
            owners: has(Loss::Owners),
            modes: has(Loss::Modes),
            links: has(Loss::Links),
            symlinks: has(Loss::Symlinks),
            devices: has(Loss::Devices),
            xattrs: has(Loss::Xattrs),
            names: has(Loss::Names),
        }
    }

    fn has(&self, loss: Loss) -> bool {
        self.drop.contains(&Dropped::Loss(loss))
    }

    /// Extended attributes to leave out when the source is read. Those that only FAT cannot store
    /// are counted, and left out when the image is built.
    pub(crate) fn xattrs(&self, is_fat: bool) -> DroppedXattrs {
        let name = |dropped: &Dropped| match dropped {
            Dropped::Xattr(name) => Some(name.clone().into_bytes()),
            Dropped::Loss(_) => None,
        };
        let names = self.drop.iter().filter_map(name).collect();
        DroppedXattrs { all: !is_fat && self.has(Loss::Xattrs), names, ..Default::default() }
    }

    /// Refuses the items that are for FAT images only.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        let for_fat =
            |dropped: &&Dropped| matches!(dropped, Dropped::Loss(loss) if *loss != Loss::Xattrs);
        match self.drop.iter().find(for_fat) {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--drop is for FAT images (--format fat32), except xattrs and names of extended \
                 attributes",
            )),
        }
    }
}
