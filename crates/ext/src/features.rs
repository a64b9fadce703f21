//! Feature names as e2fsprogs spells them, and sets of features.

use crate::ondisk::{Superblock, compat, incompat, ro_compat};
use seekless_fs::FsError;

/// Which of the superblock's three words a feature's bit stands in. The word decides whether a
/// kernel that does not support it may mount, mount read-only, or do neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Compat,
    Incompat,
    RoCompat,
}

/// Name, word, bit. The first name for a bit is the one shown.
const NAMES: &[(&str, Word, u32)] = &[
    ("dir_prealloc", Word::Compat, compat::DIR_PREALLOC),
    ("imagic_inodes", Word::Compat, compat::IMAGIC_INODES),
    ("has_journal", Word::Compat, compat::HAS_JOURNAL),
    ("ext_attr", Word::Compat, compat::EXT_ATTR),
    ("resize_inode", Word::Compat, compat::RESIZE_INODE),
    ("dir_index", Word::Compat, compat::DIR_INDEX),
    ("lazy_bg", Word::Compat, compat::LAZY_BG),
    ("snapshot_bitmap", Word::Compat, 0x80),
    ("sparse_super2", Word::Compat, compat::SPARSE_SUPER2),
    ("fast_commit", Word::Compat, compat::FAST_COMMIT),
    ("stable_inodes", Word::Compat, compat::STABLE_INODES),
    ("orphan_file", Word::Compat, compat::ORPHAN_FILE),
    ("compression", Word::Incompat, incompat::COMPRESSION),
    ("filetype", Word::Incompat, incompat::FILETYPE),
    ("needs_recovery", Word::Incompat, incompat::RECOVER),
    ("journal_dev", Word::Incompat, incompat::JOURNAL_DEV),
    ("meta_bg", Word::Incompat, incompat::META_BG),
    ("extent", Word::Incompat, incompat::EXTENTS),
    ("extents", Word::Incompat, incompat::EXTENTS),
    ("64bit", Word::Incompat, incompat::BIT64),
    ("mmp", Word::Incompat, incompat::MMP),
    ("flex_bg", Word::Incompat, incompat::FLEX_BG),
    ("ea_inode", Word::Incompat, incompat::EA_INODE),
    ("dirdata", Word::Incompat, incompat::DIRDATA),
    ("metadata_csum_seed", Word::Incompat, incompat::CSUM_SEED),
    ("large_dir", Word::Incompat, incompat::LARGEDIR),
    ("inline_data", Word::Incompat, incompat::INLINE_DATA),
    ("encrypt", Word::Incompat, incompat::ENCRYPT),
    ("casefold", Word::Incompat, incompat::CASEFOLD),
    ("sparse_super", Word::RoCompat, ro_compat::SPARSE_SUPER),
    ("large_file", Word::RoCompat, ro_compat::LARGE_FILE),
    ("btree_dir", Word::RoCompat, ro_compat::BTREE_DIR),
    ("huge_file", Word::RoCompat, ro_compat::HUGE_FILE),
    ("uninit_bg", Word::RoCompat, ro_compat::GDT_CSUM),
    ("uninit_groups", Word::RoCompat, ro_compat::GDT_CSUM),
    ("gdt_csum", Word::RoCompat, ro_compat::GDT_CSUM),
    ("dir_nlink", Word::RoCompat, ro_compat::DIR_NLINK),
    ("extra_isize", Word::RoCompat, ro_compat::EXTRA_ISIZE),
    ("snapshot", Word::RoCompat, 0x80),
    ("quota", Word::RoCompat, ro_compat::QUOTA),
    ("bigalloc", Word::RoCompat, ro_compat::BIGALLOC),
    ("metadata_csum", Word::RoCompat, ro_compat::METADATA_CSUM),
    ("replica", Word::RoCompat, 0x800),
    ("read-only", Word::RoCompat, ro_compat::READONLY),
    ("project", Word::RoCompat, ro_compat::PROJECT),
    ("shared_blocks", Word::RoCompat, ro_compat::SHARED_BLOCKS),
    ("verity", Word::RoCompat, ro_compat::VERITY),
    ("orphan_present", Word::RoCompat, ro_compat::ORPHAN_PRESENT),
];

/// Features and those that each needs, as `mke2fs` and the kernel have it.
const NEEDS: &[(&str, &str)] = &[
    ("metadata_csum_seed", "metadata_csum"),
    ("orphan_file", "has_journal"),
    ("fast_commit", "has_journal"),
    ("64bit", "extent"),
    ("bigalloc", "extent"),
    ("resize_inode", "sparse_super"),
    ("resize_inode", "large_file"),
    ("inline_data", "ext_attr"),
    ("ea_inode", "ext_attr"),
    ("large_dir", "dir_index"),
];

/// A feature left out because another one is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// Its name, as in `mke2fs`.
    pub feature: &'static str,
    /// The feature that it needs.
    pub needs: &'static str,
}

/// The first of the names of a feature.
fn canonical(name: &str) -> Option<&'static str> {
    let &(_, place, bit) = NAMES.iter().find(|(known, ..)| *known == name)?;
    NAMES.iter().find(|(_, word, known)| *word == place && *known == bit).map(|(first, ..)| *first)
}

/// A set of features: the superblock's three words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features {
    pub(crate) compat: u32,
    pub(crate) incompat: u32,
    pub(crate) ro_compat: u32,
}

impl Features {
    /// No feature.
    pub(crate) const NONE: Self = Self { compat: 0, incompat: 0, ro_compat: 0 };

    /// The default features of an ext4 file system in mke2fs 1.47, with its own configuration
    /// (distributions may hold some back).
    pub const EXT4: Self = Self {
        compat: compat::HAS_JOURNAL
            | compat::EXT_ATTR
            | compat::RESIZE_INODE
            | compat::DIR_INDEX
            | compat::ORPHAN_FILE,
        incompat: incompat::FILETYPE
            | incompat::EXTENTS
            | incompat::BIT64
            | incompat::FLEX_BG
            | incompat::CSUM_SEED,
        ro_compat: ro_compat::SPARSE_SUPER
            | ro_compat::LARGE_FILE
            | ro_compat::HUGE_FILE
            | ro_compat::DIR_NLINK
            | ro_compat::EXTRA_ISIZE
            | ro_compat::METADATA_CSUM,
    };

    /// The default features of an ext3 file system in mke2fs.
    pub const EXT3: Self = Self {
        compat: compat::HAS_JOURNAL | compat::EXT_ATTR | compat::RESIZE_INODE | compat::DIR_INDEX,
        incompat: incompat::FILETYPE,
        ro_compat: ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE,
    };

    /// The default features of an ext2 file system in mke2fs.
    pub const EXT2: Self = Self { compat: Self::EXT3.compat & !compat::HAS_JOURNAL, ..Self::EXT3 };

    /// The features of a superblock.
    pub(crate) fn of(raw: &Superblock) -> Self {
        Self {
            compat: raw.s_feature_compat.get(),
            incompat: raw.s_feature_incompat.get(),
            ro_compat: raw.s_feature_ro_compat.get(),
        }
    }

    /// Applies a list in the syntax of `mke2fs -O`: names switch on, `^name` switches off, `none`
    /// clears all that came before.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a name that is not a feature.
    pub fn apply(mut self, list: &str) -> Result<Self, FsError> {
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            if word == "none" {
                self = Self::default();
                continue;
            }
            let (name, on) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word, true),
            };
            let &(_, place, bit) = NAMES
                .iter()
                .find(|(known, ..)| *known == name)
                .ok_or_else(|| FsError::Invalid(format!("'{name}' is not an ext feature")))?;
            let bits = match place {
                Word::Compat => &mut self.compat,
                Word::Incompat => &mut self.incompat,
                Word::RoCompat => &mut self.ro_compat,
            };
            *bits = if on { *bits | bit } else { *bits & !bit };
        }
        Ok(self)
    }

    /// Applies a list as [`apply`](Self::apply) does. Removing a feature also removes those that
    /// need it, unless the list names them. Returns the features removed beyond the list, in the
    /// order in which they were found.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a name that is not a feature.
    pub fn change(self, list: &str) -> Result<(Self, Vec<LeftOut>), FsError> {
        let mut set = self.apply(list)?;
        let names = |on: bool| {
            let words = list.split([',', ' ']).filter(|word| !word.is_empty());
            let words = words.filter(move |word| word.starts_with('^') != on);
            words.map(|word| word.trim_start_matches('^')).filter_map(canonical)
        };
        let asked: Vec<&str> = names(true).collect();
        let mut gone: Vec<&str> = names(false).filter(|name| !set.has(name)).collect();
        let mut left_out = Vec::new();
        let mut at = 0usize;
        while let Some(&needed) = gone.get(at) {
            at += 1;
            for &(feature, _) in NEEDS.iter().filter(|(_, needs)| *needs == needed) {
                if set.has(feature) && !asked.contains(&feature) {
                    set = set.apply(&format!("^{feature}"))?;
                    left_out.push(LeftOut { feature, needs: needed });
                    gone.push(feature);
                }
            }
        }
        Ok((set, left_out))
    }

    /// The first feature of the set that needs one outside of it.
    pub(crate) fn lacking(self) -> Option<LeftOut> {
        let lacks = |&&(feature, needs): &&(&str, &str)| self.has(feature) && !self.has(needs);
        NEEDS.iter().find(lacks).map(|&(feature, needs)| LeftOut { feature, needs })
    }

    /// Whether a feature, by its name in [`NAMES`], is in the set.
    fn has(self, name: &str) -> bool {
        NAMES.iter().any(|&(known, place, bit)| {
            let bits = match place {
                Word::Compat => self.compat,
                Word::Incompat => self.incompat,
                Word::RoCompat => self.ro_compat,
            };
            known == name && bits & bit != 0
        })
    }

    /// Those features of the set that have a name.
    pub(crate) fn named(self) -> Self {
        let mut known = Self::NONE;
        for &(_, place, bit) in NAMES {
            let bits = match place {
                Word::Compat => &mut known.compat,
                Word::Incompat => &mut known.incompat,
                Word::RoCompat => &mut known.ro_compat,
            };
            *bits |= bit;
        }
        self.without(self.without(known))
    }

    /// The names of all features in the set, as `dumpe2fs` prints them;
    /// unknown bits as `FEATURE_C31`, `FEATURE_I31`, `FEATURE_R31`.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let mut names = Vec::new();
        for (place, letter, bits) in [
            (Word::Compat, 'C', self.compat),
            (Word::Incompat, 'I', self.incompat),
            (Word::RoCompat, 'R', self.ro_compat),
        ] {
            for at in 0..32 {
                let bit = 1u32 << at;
                if bits & bit == 0 {
                    continue;
                }
                let known = NAMES.iter().find(|(_, word, known)| *word == place && *known == bit);
                names.push(match known {
                    Some((name, ..)) => (*name).to_string(),
                    None => format!("FEATURE_{letter}{at}"),
                });
            }
        }
        names
    }

    /// Whether the volume has a journal.
    #[must_use]
    pub const fn has_journal(self) -> bool {
        self.has_compat(compat::HAS_JOURNAL)
    }

    pub(crate) const fn has_compat(self, bit: u32) -> bool {
        self.compat & bit != 0
    }

    pub(crate) const fn has_incompat(self, bit: u32) -> bool {
        self.incompat & bit != 0
    }

    pub(crate) const fn has_ro_compat(self, bit: u32) -> bool {
        self.ro_compat & bit != 0
    }

    /// Whether descriptors have a checksum, without which their flags and counts of unused inodes
    /// are ignored.
    pub(crate) const fn has_group_checksums(self) -> bool {
        self.has_ro_compat(ro_compat::METADATA_CSUM | ro_compat::GDT_CSUM)
    }

    /// The set with `other`'s members.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self {
            compat: self.compat | other.compat,
            incompat: self.incompat | other.incompat,
            ro_compat: self.ro_compat | other.ro_compat,
        }
    }

    /// The common members of the set and `other`.
    pub(crate) const fn both(self, other: Self) -> Self {
        Self {
            compat: self.compat & other.compat,
            incompat: self.incompat & other.incompat,
            ro_compat: self.ro_compat & other.ro_compat,
        }
    }

    /// The set without `other`'s members.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self {
            compat: self.compat & !other.compat,
            incompat: self.incompat & !other.incompat,
            ro_compat: self.ro_compat & !other.ro_compat,
        }
    }
}

/// Incompatible features that this crate can read.
const READABLE: u32 = incompat::FILETYPE
    | incompat::RECOVER
    | incompat::META_BG
    | incompat::EXTENTS
    | incompat::BIT64
    | incompat::MMP
    | incompat::FLEX_BG
    | incompat::EA_INODE
    | incompat::CSUM_SEED
    | incompat::LARGEDIR
    | incompat::INLINE_DATA
    | incompat::ENCRYPT
    | incompat::CASEFOLD;

/// Features that ext3 supports: any other makes an image ext4.
const EXT3_RO_COMPAT: u32 = ro_compat::SPARSE_SUPER | ro_compat::LARGE_FILE | ro_compat::BTREE_DIR;
const EXT3_INCOMPAT: u32 = incompat::FILETYPE | incompat::RECOVER | incompat::META_BG;

/// Refuses images with incompatible features that cannot be read, by name.
pub(crate) fn check(raw: &Superblock) -> Result<(), FsError> {
    let unknown = raw.s_feature_incompat.get() & !READABLE;
    if unknown == 0 {
        return Ok(());
    }
    let missing = Features { incompat: unknown, ..Features::default() }.names();
    Err(FsError::Unsupported(format!("feature {}", missing.join(", "))))
}

/// `ext2`, `ext3` or `ext4`, by the rules of `blkid`.
pub(crate) fn format_name(raw: &Superblock) -> &'static str {
    if raw.s_feature_ro_compat.get() & !EXT3_RO_COMPAT != 0
        || raw.s_feature_incompat.get() & !EXT3_INCOMPAT != 0
    {
        "ext4"
    } else if raw.s_feature_compat.get() & compat::HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_mke2fs_takes_them() {
        let set = Features::EXT4.apply("^has_journal,inline_data").unwrap();
        assert!(!set.has_compat(compat::HAS_JOURNAL) && set.has_incompat(incompat::INLINE_DATA));
        let set = Features::EXT4.apply("none,extents").unwrap();
        assert_eq!(set.names(), ["extent"]);
        assert!(Features::EXT4.apply("extnet").is_err());
    }

    #[test]
    fn what_is_taken_away_takes_what_needs_it() {
        let change = |list: &str| {
            let (set, left_out) = Features::EXT4.change(list).unwrap();
            (set, left_out.iter().map(|out| (out.feature, out.needs)).collect::<Vec<_>>())
        };
        let (set, left_out) = change("^has_journal");
        assert_eq!(left_out, [("orphan_file", "has_journal")]);
        assert!(!set.has_compat(compat::ORPHAN_FILE) && set.lacking().is_none());
        assert_eq!(change("^metadata_csum").1, [("metadata_csum_seed", "metadata_csum")]);
        assert_eq!(change("^extents").1, [("64bit", "extent")]);
        assert_eq!(change("^orphan_file,^has_journal").1, []);
        assert_eq!(change("^has_journal,has_journal").1, []);
        assert_eq!(change("none,filetype").1, []);
        // Features asked for by name are a contradiction, and stay one.
        let (set, left_out) = change("^has_journal,orphan_file");
        assert!(left_out.is_empty());
        assert_eq!(set.lacking().unwrap().feature, "orphan_file");
    }

    #[test]
    fn every_name_in_the_table_of_needs_is_a_feature() {
        for (feature, needs) in NEEDS {
            assert_eq!(canonical(feature), Some(*feature));
            assert_eq!(canonical(needs), Some(*needs));
        }
    }
}
