//! Options of mke2fs that come as lists: `-J` and `-E`.

use crate::failure::{Failure, Kind};
use crate::uuid::WantedUuid;
use clap::Args;
use seekless_ext::BuildOptions;
use seekless_units::{ByteLen, parse_size};

/// Lists as mke2fs takes them.
#[derive(Args, Debug)]
pub(super) struct ExtArgs {
    /// Options of the journal, as for mke2fs: size=SIZE, in MiB without a suffix (ext)
    #[arg(short = 'J', value_name = "size=SIZE", conflicts_with = "journal_size")]
    journal: Option<String>,
    /// Extended options, as for mke2fs: stride=BLOCKS, stripe_width=BLOCKS, hash_seed=UUID,
    /// root_owner[=UID:GID], resize=BLOCKS, no_copy_xattrs; discard, nodiscard, lazy_itable_init, lazy_journal_init and
    /// assume_storage_prezeroed make no difference to an image (ext)
    #[arg(short = 'E', value_name = "LIST")]
    extended: Option<String>,
}

/// Extended options of mke2fs that are not supported.
const NOT_SUPPORTED: &[&str] = &[
    "encoding",
    "encoding_flags",
    "mmp_update_interval",
    "offset",
    "desc_size",
    "num_backup_sb",
    "packed_meta_blocks",
    "root_selinux",
    "test_fs",
    "orphan_file_size",
    "quotatype",
    "revision",
];

/// Options that change how mke2fs writes, but not the image.
const WITHOUT_EFFECT: &[&str] =
    &["discard", "nodiscard", "lazy_itable_init", "lazy_journal_init", "assume_storage_prezeroed"];

impl ExtArgs {
    /// Whether `-J` was given.
    pub(super) fn has_journal_options(&self) -> bool {
        self.journal.is_some()
    }

    /// Whether `-E` was given.
    pub(super) fn has_extended(&self) -> bool {
        self.extended.is_some()
    }

    /// Whether extended attributes are left out (`no_copy_xattrs`).
    pub(super) fn drops_xattrs(&self) -> bool {
        self.extended.iter().flat_map(|list| words(list)).any(|(name, _)| name == "no_copy_xattrs")
    }

    /// Applies the options that were given.
    pub(super) fn apply(&self, options: &mut BuildOptions) -> Result<(), Failure> {
        for (name, value) in self.journal.iter().flat_map(|list| words(list)) {
            match (name, value) {
                ("size", Some(value)) => options.journal_size = Some(megabytes(value)?),
                ("device" | "location" | "fast_commit_size", _) => {
                    return Err(unsupported("-J", name));
                }
                _ => return Err(unknown("-J", name, value)),
            }
        }
        for (name, value) in self.extended.iter().flat_map(|list| words(list)) {
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
            ("no_copy_xattrs", None) => {}
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

/// The items of a list: names, each with the value after its equals sign, if any.
fn words(list: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    list.split(',').filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    })
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    crate::args::count(text).ok()
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
