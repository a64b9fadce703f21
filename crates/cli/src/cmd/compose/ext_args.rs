//! Options of ext images, as mke2fs has them.

use super::small;
use crate::args::count;
use crate::failure::{Failure, Kind};
use crate::uuid::WantedUuid;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use seekless_compose::wrong;
use seekless_ext::{BuildOptions, Common, Features, LeftOut, SYSTEMS, System};
use seekless_units::{ByteLen, SECTOR, parse_size};

/// Options that only ext images have.
#[derive(Args, Debug)]
#[command(next_help_heading = "Options for ext images (as in mke2fs)")]
pub(super) struct ExtArgs {
    /// Inode size in bytes, from 128 to the block size [default: 256]
    #[arg(long, short = 'I', value_parser = parse_size)]
    inode_size: Option<ByteLen>,
    /// Number of inodes [default: chosen from the size and contents]
    #[arg(long, short = 'N', value_parser = count::<u32>)]
    inodes: Option<u32>,
    /// Use only features that these systems and boot loaders know, for example
    /// debian11,grub2.06; --features may add others that they know
    #[arg(long, value_name = "SYSTEM", value_delimiter = ',', value_parser = systems())]
    compat: Vec<String>,
    /// Features to enable, or to disable with ^, as for mke2fs -O; features that
    /// depend on a disabled one are disabled too
    #[arg(long, short = 'O', value_name = "LIST")]
    features: Option<String>,
    /// Journal size [default: chosen from the size of the file system]
    #[arg(long, value_parser = parse_size)]
    journal_size: Option<ByteLen>,
    /// Options of the journal, as for mke2fs: size=SIZE, in MiB without a suffix
    #[arg(short = 'J', value_name = "size=SIZE", conflicts_with = "journal_size")]
    journal: Option<String>,
    /// Make no lost+found if the source has none; e2fsck makes it when it needs one
    #[arg(long)]
    no_lost_found: bool,
    /// Extended options, as for mke2fs: stride=BLOCKS, stripe_width=BLOCKS, hash_seed=UUID,
    /// root_owner[=UID:GID], root_perms=MODE (octal), resize=BLOCKS, no_copy_xattrs, offset=BYTES
    /// (the bytes around the file system stay, with --force, as they are in an existing file),
    /// packed_meta_blocks[=0|1], num_backup_sb=0|1|2, encoding=utf8, encoding_flags=[no]strict,
    /// orphan_file_size=SIZE (in blocks without a suffix), test_fs; discard, nodiscard,
    /// lazy_itable_init, lazy_journal_init and assume_storage_prezeroed make no difference to an
    /// image
    #[arg(short = 'E', value_name = "LIST")]
    extended: Option<String>,
}

/// The largest offset of a file system: with the largest volume of ext behind it, the end is a
/// place in a file.
const FARTHEST: u64 = (1 << 63) - (1 << 61);

/// Extended options of mke2fs that are not supported.
const NOT_SUPPORTED: &[&str] =
    &["mmp_update_interval", "desc_size", "root_selinux", "quotatype", "revision"];

/// Options that change how mke2fs writes, but not the image.
const WITHOUT_EFFECT: &[&str] =
    &["discard", "nodiscard", "lazy_itable_init", "lazy_journal_init", "assume_storage_prezeroed"];

impl ExtArgs {
    /// The features of the image, and those left out because they depend on disabled ones. `base`
    /// are those of the format, or of the older image.
    pub(super) fn wanted_features(
        &self,
        base: Features,
    ) -> Result<(Features, Vec<LeftOut>), Failure> {
        let list = self.features.as_deref().unwrap_or_default();
        let common = Common::of(&self.compat).map_err(wrong)?;
        let base = if self.compat.is_empty() { base } else { common.features(base) };
        let (features, left_out) = base.change(list).map_err(wrong)?;
        let unknown = common.unknown(features).join(", ");
        if !unknown.is_empty() {
            let what = format!("--compat excludes {unknown}, which not all of them know");
            return Err(Failure::usage(what));
        }
        Ok((features, left_out))
    }

    /// Features with one more, unless `--features` or `--compat` excludes it.
    pub(super) fn with_feature(&self, features: Features, name: &str) -> Result<Features, Failure> {
        let list = self.features.as_deref().unwrap_or_default();
        let excludes = |item: &str| item == "none" || item.strip_prefix('^') == Some(name);
        if list.split([',', ' ']).any(excludes) {
            return Ok(features);
        }
        let with = features.apply(name)?;
        let is_known = Common::of(&self.compat)?.unknown(with).is_empty();
        Ok(if is_known { with } else { features })
    }

    /// Whether the image has a `lost+found` that the source lacks.
    pub(super) fn makes_lost_and_found(&self) -> bool {
        !self.no_lost_found
    }

    /// Whether extended attributes are left out (`no_copy_xattrs`).
    pub(super) fn drops_xattrs(&self) -> bool {
        self.extended().any(|(name, _)| name == "no_copy_xattrs")
    }

    /// First byte of the file system in the output (`offset`).
    pub(super) fn offset(&self) -> Result<Option<ByteLen>, Failure> {
        let Some((name, value)) = self.extended().filter(|(name, _)| *name == "offset").last()
        else {
            return Ok(None);
        };
        let offset = value.and_then(|value| parse_size(value).ok());
        let is_place =
            |offset: &ByteLen| offset.get().is_multiple_of(SECTOR) && offset.get() <= FARTHEST;
        let offset = offset.filter(is_place);
        let what = word(name, value);
        let why = || format!("-E {what}: a multiple of {SECTOR} bytes below 8E is needed");
        offset.map(Some).ok_or_else(|| Failure::usage(why()))
    }

    /// The extended options, in order.
    fn extended(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.extended.iter().flat_map(|list| words(list))
    }

    /// Applies the options that were given, but for features. A journal has as many blocks as that
    /// of an older image with the same blocks, since it has a least number of them.
    pub(super) fn apply(&self, options: &mut BuildOptions) -> Result<(), Failure> {
        if let Some(size) = self.inode_size {
            options.inode_size = small(size)?;
        }
        options.inodes = self.inodes;
        options.makes_lost_and_found = !self.no_lost_found;
        options.journal_size = self.journal_size.or(options.journal_size);
        for (name, value) in self.journal.iter().flat_map(|list| words(list)) {
            match (name, value) {
                ("size", Some(value)) => options.journal_size = Some(megabytes(value)?),
                ("device" | "location" | "fast_commit_size", _) => {
                    return Err(unsupported("-J", name));
                }
                _ => return Err(unknown("-J", name, value)),
            }
        }
        for (name, value) in self.extended() {
            self.extend(name, value, options)?;
        }
        Ok(())
    }

    fn extend(
        &self,
        name: &str,
        value: Option<&str>,
        options: &mut BuildOptions,
    ) -> Result<(), Failure> {
        let bad = || invalid("-E", name, value);
        match (name, value) {
            ("stride", Some(value)) => options.raid_stride = number(value).ok_or_else(bad)?,
            ("stripe_width" | "stripe-width", Some(value)) => {
                options.raid_stripe_width = number(value).ok_or_else(bad)?;
            }
            ("hash_seed", Some(value)) => match WantedUuid::parse(value) {
                Ok(seed) => options.hash_seed = Some(seed.bytes()?),
                Err(_) => return Err(bad()),
            },
            ("resize", Some(value)) => {
                options.resize_limit = Some(number(value).ok_or_else(bad)?);
            }
            ("root_owner", None) => {
                let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
                options.root_owner = Some((uid.as_raw(), gid.as_raw()));
            }
            ("root_owner", Some(value)) => {
                let owner = value.split_once(':').map(|(uid, gid)| (number(uid), number(gid)));
                let Some((Some(uid), Some(gid))) = owner else { return Err(bad()) };
                options.root_owner = Some((uid, gid));
            }
            // Without a value mke2fs takes the umask, on which no image depends here.
            ("root_perms", Some(value)) => {
                let mode = u16::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
                let is_octal = value.bytes().all(|byte| byte.is_ascii_digit());
                options.root_perms = Some(mode.filter(|_| is_octal).ok_or_else(bad)?);
            }
            ("no_copy_xattrs", None) | ("offset", Some(_)) => {}
            ("packed_meta_blocks", None | Some("1")) => options.packs_metadata = true,
            ("packed_meta_blocks", Some("0")) => options.packs_metadata = false,
            ("num_backup_sb", Some(value)) => {
                options.superblock_copies =
                    number(value).filter(|copies| *copies <= 2).ok_or_else(bad)?;
            }
            ("encoding", None | Some("utf8" | "utf8-12.1")) => {
                options.features = self.with_feature(options.features, "casefold")?;
                if !options.features.names().iter().any(|name| name == "casefold") {
                    let why = "-E encoding: casefold is excluded by --features or --compat";
                    return Err(Failure::usage(why));
                }
            }
            ("orphan_file_size", Some(value)) => {
                let blocks = number::<u32>(value)
                    .map(|blocks| ByteLen::new(u64::from(blocks) * u64::from(options.block_size)));
                let size = blocks.or_else(|| parse_size(value).ok());
                options.orphan_file_size = Some(size.ok_or_else(bad)?);
            }
            ("test_fs", None) => options.is_test_filesystem = true,
            ("encoding_flags", Some("strict")) => options.has_strict_encoding = true,
            ("encoding_flags", Some("nostrict")) => options.has_strict_encoding = false,
            (name, value) if WITHOUT_EFFECT.contains(&name) => {
                if !matches!(value, None | Some("0" | "1")) {
                    return Err(bad());
                }
            }
            (name, _) if NOT_SUPPORTED.contains(&name) => return Err(unsupported("-E", name)),
            _ => return Err(unknown("-E", name, value)),
        }
        Ok(())
    }
}

/// The systems that `--compat` supports.
fn systems() -> PossibleValuesParser {
    let value = |system: &System| PossibleValue::new(system.name).help(system.what);
    PossibleValuesParser::new(SYSTEMS.iter().map(value))
}

/// The items of a list: names, each with the value after its equals sign, if any.
fn words(list: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    list.split(',').filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    })
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    count(text).ok()
}

/// A size, in MiB if it has no unit, as in mke2fs.
fn megabytes(text: &str) -> Result<ByteLen, Failure> {
    let has_unit = !text.bytes().all(|byte| byte.is_ascii_digit());
    let text = if has_unit { text.to_string() } else { format!("{text}M") };
    parse_size(&text).map_err(|why| Failure::usage(format!("-J size: {why}")))
}

fn unsupported(option: &str, name: &str) -> Failure {
    Failure::new(Kind::Unsupported, format!("unsupported: {option} {name}"))
}

fn word(name: &str, value: Option<&str>) -> String {
    value.map_or(name.to_string(), |value| format!("{name}={value}"))
}

fn unknown(option: &str, name: &str, value: Option<&str>) -> Failure {
    Failure::usage(format!("{option}: '{}' is not an option of mke2fs", word(name, value)))
}

fn invalid(option: &str, name: &str, value: Option<&str>) -> Failure {
    Failure::usage(format!("{option}: invalid value in '{}'", word(name, value)))
}
