//! The sectors in front of the FATs of an older volume, with the fields that change.

use crate::make::encode::Encoder;
use crate::ondisk::{BPB32_AT, Bpb, Bpb32, FsInfo, INFO16_AT, INFO32_AT, SIGNATURE_AT, VolumeInfo};
use crate::volume::Volume;
use seekless_fs::FsError;
use seekless_units::BlockNo;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// The reserved sectors of a volume. The boot program and everything else in them stays.
pub(crate) struct ReservedSectors<'a> {
    volume: &'a Volume,
    /// Fields of the boot sector, each with its offset.
    changes: Vec<(usize, Vec<u8>)>,
    /// Whether the copy of the boot sector gets the bytes of the boot sector, or only its changes.
    renews_copy: bool,
}

impl<'a> ReservedSectors<'a> {
    pub(crate) fn new(volume: &'a Volume) -> Self {
        Self { volume, changes: Vec::new(), renews_copy: false }
    }

    /// The copy of the boot sector becomes equal to it.
    pub(crate) fn renew_copy(&mut self) {
        self.renews_copy = true;
    }

    /// Sets the root directory's first cluster, if the volume is FAT32.
    pub(crate) fn set_root(&mut self, cluster: u32) {
        if self.volume.boot.is_fat32() {
            let at = BPB32_AT + offset_of!(Bpb32, BPB_RootClus);
            self.changes.push((at, cluster.to_le_bytes().to_vec()));
        }
    }

    /// Sets the number of sectors of the volume.
    pub(crate) fn set_total(&mut self, sectors: u32) {
        // FAT32 has the longer field only.
        let fits = u16::try_from(sectors).ok().filter(|_| !self.volume.boot.is_fat32());
        let short = fits.unwrap_or(0);
        let long = if short == 0 { sectors } else { 0 };
        self.changes.push((offset_of!(Bpb, BPB_TotSec16), short.to_le_bytes().to_vec()));
        self.changes.push((offset_of!(Bpb, BPB_TotSec32), long.to_le_bytes().to_vec()));
    }

    /// Sets the number of sectors in front of the volume.
    pub(crate) fn set_hidden(&mut self, sectors: u32) {
        self.changes.push((offset_of!(Bpb, BPB_HiddSec), sectors.to_le_bytes().to_vec()));
    }

    /// Sets the volume's number.
    pub(crate) fn set_id(&mut self, id: u32) {
        self.change_info(offset_of!(VolumeInfo, BS_VolID), &id.to_le_bytes());
    }

    /// Sets the volume's label.
    pub(crate) fn set_label(&mut self, label: &[u8; 11]) {
        self.change_info(offset_of!(VolumeInfo, BS_VolLab), label);
    }

    /// Changes a field of the extended part, if the boot sector has one: else there may be code.
    fn change_info(&mut self, at: usize, bytes: &[u8]) {
        if self.volume.boot.id.is_none() {
            return;
        }
        let info = if self.volume.boot.is_fat32() { INFO32_AT } else { INFO16_AT };
        self.changes.push((info + at, bytes.to_vec()));
    }

    /// Writes the sectors, the boot sector last. `free` clusters are free; a search for them begins
    /// at `hint`.
    pub(crate) fn write(&self, encoder: &Encoder<'_>, free: u32, hint: u32) -> Result<(), FsError> {
        let boot = &self.volume.boot;
        for sector in (0..boot.reserved).rev() {
            let is_copy = Some(sector) == boot.backup;
            let mut bytes = self.read(if is_copy && self.renews_copy { 0 } else { sector })?;
            if sector == 0 || is_copy {
                for (at, change) in &self.changes {
                    let field: Range<usize> = *at..*at + change.len();
                    debug_assert!(field.end <= SIGNATURE_AT, "field {field:?} of the boot sector");
                    bytes[field].copy_from_slice(change);
                }
            }
            if Some(sector) == boot.info
                && let Ok(mut info) = FsInfo::read_from_bytes(&bytes[..size_of::<FsInfo>()])
            {
                (info.FSI_Free_Count, info.FSI_Nxt_Free) = (free.into(), hint.into());
                bytes[..size_of::<FsInfo>()].copy_from_slice(info.as_bytes());
            }
            if bytes.iter().any(|&byte| byte != 0) {
                encoder.put(sector.into(), &bytes)?;
            }
        }
        Ok(())
    }

    fn read(&self, sector: u32) -> Result<Vec<u8>, FsError> {
        let mut bytes = vec![0; self.volume.boot.sector as usize];
        self.volume.read_bytes(BlockNo::new(sector.into()), 0, &mut bytes)?;
        Ok(bytes)
    }
}
