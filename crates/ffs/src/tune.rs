//! Changes the settings of a volume, as `tunefs` does.

use crate::make::Optimization;
use crate::ondisk::flag;
use crate::superblock::Super;
use crate::superblock_edit::SuperblockMut;
use seekless_device::BlockDevice;
use seekless_fs::FsError;

/// Longest label, in bytes.
const LABEL: usize = 31;

/// Settings to change; `None` leaves one as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Soft updates (`-n`).
    pub soft_updates: Option<bool>,
    /// POSIX.1e access control lists (`-a`).
    pub acls: Option<bool>,
    /// Blocks that a file may take in one group (`-e`), at least 1.
    pub maxbpg: Option<u32>,
    /// Average length of files in bytes (`-f`), at least 1.
    pub avgfilesize: Option<u32>,
    /// Average number of files in a directory (`-s`), at least 1.
    pub avgfpdir: Option<u32>,
    /// Percent of the space kept from ordinary users (`-m`), below 100.
    pub minfree: Option<u32>,
    /// The resource that the allocator saves (`-o`).
    pub optimization: Option<Optimization>,
    /// Fragments held for metadata at the start of each group's data (`-k`);
    /// rounded down to whole blocks, and to half a group at most.
    pub metaspace: Option<u64>,
    /// Volume label (`-L`): up to 31 letters, digits, dashes, underscores.
    pub label: Option<Vec<u8>>,
}

/// The settings of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Soft updates (`-n`).
    pub soft_updates: bool,
    /// Soft updates with a journal (`-j`).
    pub journaled_soft_updates: bool,
    /// Journaled by gjournal (`-J`).
    pub gjournal: bool,
    /// POSIX.1e access control lists (`-a`).
    pub acls: bool,
    /// NFSv4 access control lists (`-N`).
    pub nfs4_acls: bool,
    /// A label of mandatory access control for each file (`-l`).
    pub multilabel: bool,
    /// The device is told of freed space (`-t`).
    pub trim: bool,
    /// Blocks that a file may take in one group (`-e`).
    pub maxbpg: u32,
    /// Average length of files in bytes (`-f`).
    pub avgfilesize: u32,
    /// Average number of files in a directory (`-s`).
    pub avgfpdir: u32,
    /// Percent of the space kept from ordinary users (`-m`).
    pub minfree: u32,
    /// The resource that the allocator saves (`-o`).
    pub optimization: Optimization,
    /// Fragments held for metadata at the start of each group's data (`-k`).
    pub metaspace: u64,
    /// Volume label (`-L`).
    pub label: Vec<u8>,
}

impl Settings {
    /// Reads the settings of the volume on a device.
    ///
    /// # Errors
    /// As [`FfsImage::open`](crate::image::FfsImage::open).
    pub fn read(device: &dyn BlockDevice) -> Result<Self, FsError> {
        Ok(Self::of(&Super::read(device, false)?))
    }

    fn of(sb: &Super) -> Self {
        let has = |bit| sb.flags & bit != 0;
        Self {
            soft_updates: has(flag::SOFT_UPDATES),
            journaled_soft_updates: has(flag::JOURNALED_SOFT_UPDATES),
            gjournal: has(flag::GJOURNAL),
            acls: has(flag::ACLS),
            nfs4_acls: has(flag::NFS4_ACLS),
            multilabel: has(flag::MULTILABEL),
            trim: has(flag::TRIM),
            maxbpg: sb.tuning.maxbpg,
            avgfilesize: sb.tuning.avgfilesize,
            avgfpdir: sb.tuning.avgfpdir,
            minfree: sb.tuning.minfree,
            optimization: match sb.tuning.optim {
                0 => Optimization::Time,
                _ => Optimization::Space,
            },
            metaspace: sb.tuning.metaspace,
            label: sb.label.clone(),
        }
    }
}

impl Changes {
    fn check(&self) -> Result<(), FsError> {
        let wrong = |what: String| Err(FsError::Invalid(what));
        for (what, value) in [
            ("number of blocks of a file in a group", self.maxbpg),
            ("average file size", self.avgfilesize),
            ("average number of files in a directory", self.avgfpdir),
        ] {
            if value.is_some_and(|value| value == 0 || i32::try_from(value).is_err()) {
                return wrong(format!("the {what} must be from 1 to {}", i32::MAX));
            }
        }
        if let Some(minfree) = self.minfree.filter(|&minfree| minfree > 99) {
            return wrong(format!("{minfree}% kept free leaves no space for files"));
        }
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        match &self.label {
            Some(label) if label.len() > LABEL => {
                wrong(format!("the label is longer than {LABEL} bytes"))
            }
            Some(label) if !label.iter().all(allowed) => {
                wrong("a label may only contain letters, digits, dashes and underscores".into())
            }
            _ => Ok(()),
        }
    }

    /// Applies the changes to a device and returns the settings before and after. `copies` writes
    /// the superblock's copies too, one a group.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a value that makes no sense, and, before anything is written,
    /// [`FsError::Refused`] for a volume that was not unmounted, [`FsError::Unsupported`] for one
    /// that we must not change; errors of the device.
    pub fn apply(
        &self,
        device: &dyn BlockDevice,
        copies: bool,
    ) -> Result<(Settings, Settings), FsError> {
        self.check()?;
        let sb = Super::read(device, false)?;
        sb.refuse_unclean()?;
        sb.check_writable()?;
        if sb.is_journaled() && self.soft_updates == Some(false) {
            let what = "disabling soft updates of a volume with a journal (tunefs -j disable)";
            return Err(FsError::Unsupported(what.into()));
        }
        let mut superblock = SuperblockMut::read(&sb, device)?;
        self.edit(&sb, &mut superblock);
        superblock.write(device, copies)?;
        device.flush()?;
        Ok((Settings::of(&sb), Settings::read(device)?))
    }

    fn edit(&self, sb: &Super, superblock: &mut SuperblockMut<'_>) {
        debug_assert!(self.check().is_ok(), "the values were checked");
        let mut flags = sb.flags;
        for (bit, on) in [(flag::SOFT_UPDATES, self.soft_updates), (flag::ACLS, self.acls)] {
            match on {
                Some(true) => flags |= bit,
                Some(false) => flags &= !bit,
                None => {}
            }
        }
        if flags != sb.flags {
            superblock.set_flags(flags);
        }
        let set = |value: Option<u32>, with: &mut dyn FnMut(u32)| value.into_iter().for_each(with);
        set(self.maxbpg, &mut |value| superblock.set_maxbpg(value));
        set(self.avgfilesize, &mut |value| superblock.set_avgfilesize(value));
        set(self.avgfpdir, &mut |value| superblock.set_avgfpdir(value));
        set(self.minfree, &mut |value| superblock.set_minfree(value));
        set(self.optimization.map(|spare| u32::from(spare == Optimization::Space)), &mut |value| {
            superblock.set_optim(value);
        });
        if let Some(frags) = self.metaspace {
            let most = frags.min(u64::from(sb.fpg / 2));
            superblock.set_metaspace(most - most % u64::from(sb.frag));
        }
        if let Some(label) = &self.label {
            superblock.set_label(label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ondisk::{Superblock, check_hash};
    use crate::{MakeOptions, Version, make};
    use seekless_device::MemoryDevice;
    use seekless_units::{ByteLen, Lba};
    use std::mem::offset_of;
    use zerocopy::byteorder::LE;

    const LEN: usize = 12 << 20;

    fn volume(version: Version, big_endian: bool) -> MemoryDevice {
        let device = MemoryDevice::new(vec![0; LEN]);
        let mut options = MakeOptions::new(version, ByteLen::new(LEN as u64));
        (options.block_size, options.fragment_size) = (8192, 1024);
        options.big_endian = big_endian;
        make(&device, &options).unwrap();
        device
    }

    fn bytes(device: &MemoryDevice) -> Vec<u8> {
        let mut all = vec![0; LEN];
        device.read(Lba::ZERO, &mut all).unwrap();
        all
    }

    fn all() -> Changes {
        Changes {
            soft_updates: Some(true),
            acls: Some(true),
            maxbpg: Some(77),
            avgfilesize: Some(5000),
            avgfpdir: Some(12),
            minfree: Some(3),
            optimization: Some(Optimization::Space),
            metaspace: Some(27),
            label: Some(b"new-label_1".to_vec()),
        }
    }

    #[test]
    fn every_setting_changes_and_nothing_else() {
        for (version, big_endian) in
            [(Version::Ufs1, false), (Version::Ufs1, true), (Version::Ufs2, false)]
        {
            let device = volume(version, big_endian);
            let before = bytes(&device);
            let (old, new) = all().apply(&device, false).unwrap();
            assert_eq!((old.minfree, old.soft_updates, old.maxbpg), (8, false, 1024));
            let expected = Settings {
                soft_updates: true,
                acls: true,
                maxbpg: 77,
                avgfilesize: 5000,
                avgfpdir: 12,
                minfree: 3,
                optimization: Optimization::Space,
                metaspace: 24,
                label: b"new-label_1".to_vec(),
                ..old.clone()
            };
            assert_eq!(new, expected);
            let undo = Changes {
                soft_updates: Some(false),
                acls: Some(false),
                maxbpg: Some(old.maxbpg),
                avgfilesize: Some(old.avgfilesize),
                avgfpdir: Some(old.avgfpdir),
                minfree: Some(old.minfree),
                optimization: Some(Optimization::Time),
                metaspace: Some(old.metaspace),
                label: Some(Vec::new()),
            };
            undo.apply(&device, false).unwrap();
            assert_eq!(bytes(&device), before, "{version:?} {big_endian}");
        }
    }

    #[test]
    fn copies_are_written_on_request() {
        let device = volume(Version::Ufs2, false);
        let sb = Super::read(&device, false).unwrap();
        let percents = || -> Vec<u8> {
            let all = bytes(&device);
            let at = offset_of!(Superblock<LE>, fs_minfree);
            SuperblockMut::places(&sb).map(|place| all[place.get() as usize + at]).collect()
        };
        assert_eq!(percents(), vec![8; sb.ncg as usize + 1]);
        let change = Changes { minfree: Some(5), ..Changes::default() };
        change.apply(&device, false).unwrap();
        assert_eq!(percents()[..2], [5, 8]);
        change.apply(&device, true).unwrap();
        assert_eq!(percents(), vec![5; sb.ncg as usize + 1]);
    }

    #[test]
    fn the_check_hash_is_renewed() {
        let device = volume(Version::Ufs2, false);
        let mut sb = Super::read(&device, false).unwrap();
        sb.demand_check_hashes();
        let mut superblock = SuperblockMut::read(&sb, &device).unwrap();
        superblock.set_flags(flag::CHECK_HASHES);
        let at = sb.at as usize + offset_of!(Superblock<LE>, fs_metackhash);
        superblock.write(&device, false).unwrap();
        let mut all = bytes(&device);
        all[at] = u8::try_from(check_hash::SUPERBLOCK).unwrap();
        // The hash was computed without the flag for it.
        let device = MemoryDevice::new(all);
        assert!(Settings::read(&device).is_err());
        let unchecked = Super::read(&device, true).unwrap();
        SuperblockMut::read(&unchecked, &device).unwrap().write(&device, false).unwrap();
        Settings::read(&device).unwrap();
        Changes { minfree: Some(5), ..Changes::default() }.apply(&device, false).unwrap();
        assert_eq!(Settings::read(&device).unwrap().minfree, 5);
    }

    #[test]
    fn refusals_write_nothing() {
        let device = volume(Version::Ufs2, false);
        let change = |at: usize, value: u8| {
            let mut all = bytes(&device);
            all[65536 + at] = value;
            let device = MemoryDevice::new(all);
            // With the check hash that it has then.
            let sb = Super::read(&device, true).unwrap();
            SuperblockMut::read(&sb, &device).unwrap().write(&device, false).unwrap();
            device
        };
        let flags = offset_of!(Superblock<LE>, fs_flags);
        for device in [
            change(offset_of!(Superblock<LE>, fs_clean), 0),
            change(flags, u8::try_from(flag::NEEDS_FSCK).unwrap()),
            change(offset_of!(Superblock<LE>, fs_snapinum), 5),
        ] {
            let before = bytes(&device);
            let refused = all().apply(&device, true);
            assert!(matches!(refused, Err(FsError::Refused(_) | FsError::Unsupported(_))));
            assert_eq!(bytes(&device), before);
        }
        let journaled = change(flags, u8::try_from(flag::JOURNALED_SOFT_UPDATES).unwrap());
        let before = bytes(&journaled);
        let disable = Changes { soft_updates: Some(false), ..Changes::default() };
        assert!(matches!(disable.apply(&journaled, true), Err(FsError::Unsupported(_))));
        assert_eq!(bytes(&journaled), before);
        let label = Changes { label: Some(b"journaled".to_vec()), ..Changes::default() };
        label.apply(&journaled, true).unwrap();
        assert!(Settings::read(&journaled).unwrap().journaled_soft_updates);
        let before = bytes(&device);
        for wrong in [
            Changes { minfree: Some(100), ..Changes::default() },
            Changes { maxbpg: Some(0), ..Changes::default() },
            Changes { label: Some(vec![b'x'; 32]), ..Changes::default() },
            Changes { label: Some(b"a b".to_vec()), ..Changes::default() },
        ] {
            assert!(matches!(wrong.apply(&device, true), Err(FsError::Invalid(_))), "{wrong:?}");
        }
        assert_eq!(bytes(&device), before);
    }
}
