//! Systems and boot loaders that an image is to work with, and the features that they support.
//!
//! Sources, by component of a system:
//! - kernels: `fs/ext4/ext4.h` of the release named (`EXT4_FEATURE_*_SUPP`);
//!   `orphan_file` came with Linux 5.15, `verity` with 5.4
//! - e2fsprogs: its release notes and `misc/mke2fs.conf.in`; `metadata_csum` came with 1.43,
//!   `verity` with 1.45.4, `orphan_file` with 1.47.0. e2fsck refuses features that it does not
//!   support, even if the kernel supports them
//! - GRUB: `grub-core/fs/ext2.c`. It looks at incompatible features only: 2.06 reads
//!   filetype, extent, flex_bg, meta_bg and 64bit, 2.12 ignores `metadata_csum_seed` too
//! - edk2: `Ext4Dxe/Superblock.c` of Ext4Pkg in edk2-platforms
//! - Android: `misc/mke2fs.conf` of `platform/external/e2fsprogs`

use crate::features::Features;
use crate::ondisk::{compat, incompat, ro_compat};
use seekless_fs::FsError;

/// A system or boot loader, by the ext features that it supports.
#[derive(Clone, Copy, Debug)]
pub struct System {
    /// Its name as an option's value.
    pub name: &'static str,
    /// A description, in a line.
    pub what: &'static str,
    /// Features of an ext4 image for it.
    features: Features,
    /// Further features that it supports.
    also: Features,
}

/// Not known to e2fsprogs before 1.47 or to GRUB before 2.12.
const LATEST: Features =
    Features { compat: compat::ORPHAN_FILE, incompat: incompat::CSUM_SEED, ro_compat: 0 };

const CSUM_SEED: Features = Features { compat: 0, incompat: incompat::CSUM_SEED, ro_compat: 0 };
const LARGE_DIR: Features = Features { compat: 0, incompat: incompat::LARGEDIR, ro_compat: 0 };
const UNINIT_BG: Features = Features { compat: 0, incompat: 0, ro_compat: ro_compat::GDT_CSUM };
const VERITY: Features = Features { compat: 0, incompat: 0, ro_compat: ro_compat::VERITY };
const METADATA_CSUM: Features =
    Features { compat: 0, incompat: 0, ro_compat: ro_compat::METADATA_CSUM };

/// The default features of ext4 in mke2fs 1.43 to 1.46.
const STABLE: Features = Features::EXT4.without(LATEST);

/// Those in mke2fs 1.42, with `uninit_bg` for checksums.
const OLD: Features = STABLE.without(METADATA_CSUM).with(UNINIT_BG);

/// Those in Android's mke2fs.
const ANDROID: Features = Features {
    compat: compat::HAS_JOURNAL | compat::EXT_ATTR | compat::DIR_INDEX,
    incompat: incompat::FILETYPE | incompat::EXTENTS,
    ro_compat: ro_compat::SPARSE_SUPER
        | ro_compat::LARGE_FILE
        | ro_compat::HUGE_FILE
        | ro_compat::GDT_CSUM
        | ro_compat::DIR_NLINK
        | ro_compat::EXTRA_ISIZE,
};

const fn system(
    name: &'static str,
    what: &'static str,
    features: Features,
    also: Features,
) -> System {
    System { name, what, features, also }
}

/// All that are known.
pub const SYSTEMS: &[System] = &[
    system("debian11", "Linux 5.10, e2fsprogs 1.46, GRUB 2.06", STABLE, UNINIT_BG.with(VERITY)),
    system(
        "debian12",
        "Linux 6.1, e2fsprogs 1.47.0, GRUB 2.06 with later changes",
        STABLE,
        UNINIT_BG.with(VERITY).with(LATEST),
    ),
    system(
        "debian13",
        "Linux 6.12, e2fsprogs 1.47.2, GRUB 2.12",
        Features::EXT4,
        UNINIT_BG.with(VERITY),
    ),
    system("ubuntu20.04", "Linux 5.4, e2fsprogs 1.45, GRUB 2.04", STABLE, UNINIT_BG.with(VERITY)),
    system("ubuntu22.04", "Linux 5.15, e2fsprogs 1.46, GRUB 2.06", STABLE, UNINIT_BG.with(VERITY)),
    system(
        "ubuntu24.04",
        "Linux 6.8, e2fsprogs 1.47.0, GRUB 2.12",
        Features::EXT4,
        UNINIT_BG.with(VERITY),
    ),
    system("rhel7", "Linux 3.10, e2fsprogs 1.42, GRUB 2.02", OLD, Features::NONE),
    system("rhel8", "Linux 4.18, e2fsprogs 1.45, GRUB 2.02", STABLE, UNINIT_BG),
    system("rhel9", "Linux 5.14, e2fsprogs 1.46, GRUB 2.06", STABLE, UNINIT_BG.with(VERITY)),
    system(
        "grub2.06",
        "GRUB 2.02 to 2.06, without changes of a distribution",
        Features::EXT4.without(CSUM_SEED),
        UNINIT_BG.with(VERITY),
    ),
    system("grub2.12", "GRUB 2.12", Features::EXT4, UNINIT_BG.with(VERITY)),
    system(
        "edk2",
        "Ext4Dxe of edk2-platforms, for UEFI",
        Features::EXT4,
        UNINIT_BG.with(VERITY).with(LARGE_DIR),
    ),
    system("android", "what Android's own mke2fs makes", ANDROID, STABLE.with(VERITY)),
];

/// The features that several systems all support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Common {
    features: Features,
    known: Features,
}

impl Common {
    /// The common features of these systems.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a name that is not in [`SYSTEMS`].
    pub fn of<S: AsRef<str>>(names: &[S]) -> Result<Self, FsError> {
        let all = Features { compat: u32::MAX, incompat: u32::MAX, ro_compat: u32::MAX };
        let mut common = Self { features: Features::EXT4.with(UNINIT_BG), known: all };
        for name in names {
            let name = name.as_ref();
            let found = SYSTEMS.iter().find(|system| system.name == name);
            let system = found.ok_or_else(|| {
                let known: Vec<&str> = SYSTEMS.iter().map(|system| system.name).collect();
                FsError::Invalid(format!("'{name}' is not known; there are {}", known.join(", ")))
            })?;
            common.features = common.features.both(system.features);
            common.known = common.known.both(system.features.with(system.also));
        }
        Ok(common)
    }

    /// The features of an image for these systems: for ext4 those that all of them have by default;
    /// for ext2 and ext3, those of `base` that all of them support.
    #[must_use]
    pub fn features(self, base: Features) -> Features {
        if base == Features::EXT4 { self.features } else { base.both(self.known) }
    }

    /// The names of those of the features that one of the systems does not support.
    #[must_use]
    pub fn unknown(self, features: Features) -> Vec<String> {
        features.without(self.known).names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_is_one_that_can_be_built() {
        for system in SYSTEMS {
            let set = Common::of(&[system.name]).unwrap();
            let features = set.features(Features::EXT4);
            assert_eq!(features, system.features, "{}", system.name);
            let options = crate::BuildOptions { features, ..Default::default() };
            options.check().unwrap();
            assert!(set.unknown(features).is_empty(), "{}", system.name);
            for base in [Features::EXT2, Features::EXT3] {
                assert_eq!(set.features(base), base, "{}", system.name);
            }
        }
    }

    #[test]
    fn several_have_what_is_common_to_them() {
        let set = Common::of(&["debian13", "rhel7"]).unwrap();
        let names = set.features(Features::EXT4).names();
        for absent in ["metadata_csum", "uninit_bg", "orphan_file", "metadata_csum_seed"] {
            assert!(!names.iter().any(|name| name == absent), "{names:?}");
        }
        assert!(set.unknown(OLD).is_empty(), "both know uninit_bg");
        let set = Common::of(&["debian12", "grub2.06"]).unwrap();
        assert_eq!(set.unknown(CSUM_SEED), ["metadata_csum_seed"]);
        assert!(Common::of(&["debian12"]).unwrap().unknown(LATEST).is_empty());
        assert!(Common::of(&["slackware"]).unwrap_err().to_string().contains("debian11"));
    }
}
